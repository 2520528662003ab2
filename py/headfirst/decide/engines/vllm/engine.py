"""vLLM as one of the engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headfirst.decide.engines import image_tags, log_file
from headfirst.decide.engines.base import (
    Arguments,
    Launch,
    LaunchRequest,
    MemoryUse,
    Metrics,
    Readiness,
    RequestDialect,
    Task,
)
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.engines.vllm import (
    arguments,
    dialect,
    launch,
    memory,
    readiness,
    specification,
    support,
)
from headfirst.decide.engines.vllm import layout as vllm_layout
from headfirst.decide.engines.vllm.metrics import METRICS
from headfirst.decide.hardware.gpus import Gpu
from headfirst.decide.model.checkpoint import Checkpoint

if TYPE_CHECKING:
    from headfirst.decide.containers.image import ImageRecipe
    from headfirst.decide.engines.diagnostics import Diagnostics


class Vllm:
    """vLLM of one version; see headfirst.decide.engines.base.Engine for what each method answers."""

    name = "vllm"
    title = "vLLM"

    def __init__(self, version: str) -> None:
        self.version = version

    def default_image(self, device: str) -> str:
        """The project's own image for GPUs; for CPUs the one of `image_recipe`."""
        if device == "cpu":
            return f"headfirst/vllm-cpu:{self.version}"
        return f"vllm/vllm-openai:v{self.version}"

    def image_version(self, image: str) -> str | None:
        """Tags are v0.33.0, v0.33.0-cu129, v0.32.1rc2 and the like."""
        return image_tags.release(image)

    def image_recipe(self, device: str) -> ImageRecipe | None:
        """The published packages of 0.32.0 for CPUs; images for GPUs come from the project's registry."""
        from headfirst.decide.engines.vllm.cpu_image import RECIPE

        return RECIPE if RECIPE.tag == self.default_image(device) else None

    def cuda(self, image: str) -> str:
        """Tags end in -cu129 or -cu130; the plain one has CUDA 13 (METADATA: nvidia-cutlass-dsl[cu13])."""
        return image_tags.cuda(image) or ("13.0" if image == self.default_image("cuda") else "")

    def check_arguments(self, words: Sequence[str]) -> Arguments:
        """Check against the parser of this vLLM version, and what its server checks after it."""
        return arguments.check(specification.load(self.version), words)

    def support_problems(
        self, checkpoint: Checkpoint, gpu: Gpu | None, task: Task, values: Mapping[str, Any]
    ) -> list[str]:
        """What the registries of this version do not have."""
        return support.problems(self.version, checkpoint, gpu, task, values)

    def fp8_capability(self, checkpoint: Checkpoint) -> tuple[int, int] | None:
        """Below Ada, FP8 weights are unpacked by Marlin's kernels."""
        return support.capability(self.version, "fp8")

    def layout(self, tensor: int, pipeline: int, values: Mapping[str, Any]) -> Layout:
        """Data and expert parallelism come from the user's arguments."""
        return vllm_layout.layout(tensor, pipeline, values)

    def layout_problems(
        self,
        checkpoint: Checkpoint,
        machines: Machines,
        layout: Layout,
        *,
        dtype: str,
        values: Mapping[str, Any],
    ) -> list[str]:
        """What vLLM raises when it makes its configuration or loads the model."""
        return vllm_layout.problems(self.version, checkpoint, machines, layout, dtype=dtype, values=values)

    def pipeline_layers(self, stage: int, stages: int, layers: int, environment: Mapping[str, str]) -> range:
        """As get_pp_indices of vllm/distributed/utils.py."""
        return vllm_layout.pipeline_layers(stage, stages, layers, environment)

    def memory_use(
        self, checkpoint: Checkpoint, gpu: Gpu, layout: Layout, values: Mapping[str, Any]
    ) -> MemoryUse:
        """Memory by gpu_memory_utilization and vLLM's profiling."""
        return memory.memory_use(self.version, checkpoint, gpu, layout, values)

    def launch(self, request: LaunchRequest) -> Launch:
        """`vllm serve …`, by vLLM's own launcher or on Ray."""
        return launch.launch(request)

    def rendezvous_ports(self, request: LaunchRequest) -> Sequence[int]:
        """torch's rendezvous, or Ray's, and the handshake of data-parallel ranks."""
        return launch.rendezvous_ports(request)

    def config_file(self, *, api_key: str) -> dict[str, str]:
        """Put before its arguments by vLLM; the file's name must end in .yaml, and a key must not begin
        with '-', which its parser would take for a flag."""
        return {"api-key": api_key}

    def readiness(self, task: Task) -> Readiness:
        """/health needs no key and answers 200 while the engine's processes live."""
        return readiness.readiness(task)

    def log(self) -> Mapping[str, Any]:
        """Lines of 0.32 and 0.33."""
        return log_file.read(Path(__file__).parent)

    def metrics(self) -> Metrics:
        """The same names in all supported versions."""
        return METRICS

    def publishes(self, values: Mapping[str, Any]) -> bool:
        """Without statistics /metrics has none of the engine's figures."""
        return not values.get("disable_log_stats", False)

    def diagnostics(self) -> Diagnostics:
        """vLLM's flags."""
        from headfirst.decide.engines.vllm.diagnosis import DIAGNOSTICS

        return DIAGNOSTICS

    def request_dialect(self, values: Mapping[str, Any]) -> RequestDialect:
        """As vllm/entrypoints defines its requests."""
        return dialect.dialect(values)


ENGINES = tuple(Vllm(version) for version in specification.VERSIONS)
