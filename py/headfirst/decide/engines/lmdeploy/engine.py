"""LMDeploy as one of the engines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headfirst.common.errors import InputError
from headfirst.decide.engines import argument_check, image_tags, log_file, nccl
from headfirst.decide.engines.base import (
    Arguments,
    Engine,
    Launch,
    LaunchRequest,
    MemoryUse,
    Metrics,
    Readiness,
    RequestDialect,
    Task,
)
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.engines.lmdeploy import backend, dialect, launch, memory, specification
from headfirst.decide.engines.lmdeploy import layout as lmdeploy_layout
from headfirst.decide.engines.lmdeploy.metrics import METRICS
from headfirst.decide.hardware.gpus import FP8_CAPABILITY, Gpu
from headfirst.decide.model.checkpoint import Checkpoint

if TYPE_CHECKING:
    from headfirst.decide.containers.image import ImageRecipe
    from headfirst.decide.engines.diagnostics import Diagnostics

# TurboMind multiplies FP8 weights in 16 bits from Volta on (kernels/gemm/kernel/sm70_884_8.cu).
_TURBOMIND_FP8 = (7, 0)


class Lmdeploy:
    """LMDeploy of one version; see headfirst.decide.engines.base.Engine for what each method answers."""

    name = "lmdeploy"
    title = "LMDeploy"

    def __init__(self, version: str) -> None:
        self.version = version

    def default_image(self, device: str) -> str:
        """The project's own image. `latest` is the one with CUDA 12.8 (.github/workflows/docker.yml)."""
        _refuse_cpu(device)
        return f"openmmlab/lmdeploy:v{self.version}-cu12.8"

    def image_version(self, image: str) -> str | None:
        """Tags are v0.18.0-cu12.8, v0.18.0-cu13.0 and the like."""
        found = re.match(r"v?(\d+\.\d+\.\d+(?:\.post\d+)?)(?![\w.])", image_tags.tag(image))
        return found[1] if found else None

    def image_recipe(self, device: str) -> ImageRecipe | None:
        """Images come from the project's registry."""
        return None

    def cuda(self, image: str) -> str:
        """Tags end in -cu12.8 or -cu13.0; `latest` has CUDA 12.8."""
        if found := re.search(r"-cu(\d+\.\d+)\b", image):
            return found[1]
        return "12.8" if image.endswith("/lmdeploy:latest") else ""

    def check_arguments(self, arguments: Sequence[str]) -> Arguments:
        """Check against the parser of this LMDeploy version."""
        return argument_check.check(specification.load(self.version), arguments)

    def support_problems(
        self, checkpoint: Checkpoint, gpu: Gpu | None, task: Task, values: Mapping[str, Any]
    ) -> list[str]:
        """Architectures and quantisations of its two back ends, by their own tables."""
        return backend.problems(self.version, checkpoint, task, values)

    def fp8_capability(self, checkpoint: Checkpoint) -> tuple[int, int] | None:
        """What both back ends need, where both have the model: several nodes take the PyTorch engine."""
        able = backend.serving(self.version, checkpoint)
        return _TURBOMIND_FP8 if able == [backend.TURBOMIND] else FP8_CAPABILITY

    def layout(self, tensor: int, pipeline: int, values: Mapping[str, Any]) -> Layout:
        """Data parallelism of the attention and expert parallelism come from the user's arguments."""
        return lmdeploy_layout.layout(tensor, pipeline, values)

    def layout_problems(
        self,
        checkpoint: Checkpoint,
        machines: Machines,
        layout: Layout,
        *,
        dtype: str,
        values: Mapping[str, Any],
    ) -> list[str]:
        """What LMDeploy asserts when it loads the model."""
        chosen = backend.choose(self.version, checkpoint, values, nodes=machines.nodes)
        return lmdeploy_layout.problems(checkpoint, machines, layout, chosen, values)

    def pipeline_layers(self, stage: int, stages: int, layers: int, environment: Mapping[str, str]) -> range:
        """No pipeline parallelism."""
        return range(layers)

    def memory_use(
        self, checkpoint: Checkpoint, gpu: Gpu, layout: Layout, values: Mapping[str, Any]
    ) -> MemoryUse:
        """The KV cache is a fraction of what the weights leave free."""
        return memory.memory_use(checkpoint, gpu, layout, values)

    def launch(self, request: LaunchRequest) -> Launch:
        """`lmdeploy serve api_server …`, over several nodes in a script that starts Ray or the proxy."""
        _refuse_cpu(request.device)
        values = self.check_arguments(request.extra_args).values
        chosen = backend.choose(
            self.version,
            request.checkpoint,
            values,
            nodes=request.nodes,
            runtime=request.runtime,
            adapters=bool(request.adapters),
        )
        if request.runtime == "ray" and chosen == backend.TURBOMIND:
            raise InputError(
                "TurboMind does not run in Ray.",
                hint="Remove engine_runtime, or write --backend pytorch in engine_args.",
            )
        environment = nccl.environment(request) | launch.environment(request, chosen, values)
        return Launch(launch.argv(request, chosen, values), environment | dict(request.extra_env))

    def rendezvous_ports(self, request: LaunchRequest) -> Sequence[int]:
        """Ray's head (or TurboMind's store, or that of the DP ranks), and torch's store beside Ray."""
        return range(request.dist_port, request.dist_port + 2)

    def config_file(self, *, api_key: str) -> dict[str, str]:
        """Read by the program in launch.py, and hashed into Ray's token."""
        return {"api-key": api_key}

    def readiness(self, task: Task) -> Readiness:
        """The server listens after it has loaded the model; /health is missing in the proxy of --dp."""
        if task == "reward":
            return Readiness("/v1/models", "/pooling", {"input": "Hello"}, ("usage", "prompt_tokens"))
        return Readiness(
            path="/v1/models",
            probe_path="/v1/chat/completions",
            probe_body={
                "messages": [{"role": "user", "content": "Hello"}],
                "max_tokens": 1,
                "temperature": 0,
            },
            answer=("usage", "completion_tokens"),
        )

    def log(self) -> Mapping[str, Any]:
        """Lines of 0.17.0 and 0.18.0, and of Ray."""
        return log_file.read(Path(__file__).parent)

    def metrics(self) -> Metrics:
        """The same names in all supported versions."""
        return METRICS

    def publishes(self, values: Mapping[str, Any]) -> bool:
        """With --dp the proxy answers at the engine's port, and has no figures."""
        return not values.get("disable_metrics", False) and values.get("dp", 1) == 1

    def diagnostics(self) -> Diagnostics:
        """LMDeploy's flags; there are no tuning rules."""
        from headfirst.decide.engines.lmdeploy.diagnosis import DIAGNOSTICS

        return DIAGNOSTICS

    def request_dialect(self, values: Mapping[str, Any]) -> RequestDialect:
        """As lmdeploy/serve/openai defines its requests."""
        return dialect.dialect(values)


def _refuse_cpu(device: str) -> None:
    if device == "cpu":
        raise InputError(
            "LMDeploy has no back end for CPUs.",
            hint="Remove engine_device=cpu, or take an engine that has one: engine=sglang or engine=vllm.",
        )


ENGINES: tuple[Engine, ...] = tuple(Lmdeploy(version) for version in specification.VERSIONS)
