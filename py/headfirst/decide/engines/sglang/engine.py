"""SGLang as one of the engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headfirst.decide.engines import argument_check, image_tags, log_file
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
from headfirst.decide.engines.sglang import (
    dialect,
    environment,
    launch,
    memory,
    specification,
    support,
)
from headfirst.decide.engines.sglang import layout as sglang_layout
from headfirst.decide.engines.sglang.metrics import METRICS
from headfirst.decide.engines.sglang.readiness import READINESS
from headfirst.decide.hardware.gpus import FP8_CAPABILITY, Gpu
from headfirst.decide.model.checkpoint import Checkpoint

if TYPE_CHECKING:
    from headfirst.decide.containers.image import ImageRecipe
    from headfirst.decide.engines.diagnostics import Diagnostics


class Sglang:
    """SGLang of one version; see headfirst.decide.engines.base.Engine for what each method answers."""

    name = "sglang"
    title = "SGLang"

    def __init__(self, version: str) -> None:
        self.version = version

    def default_image(self, device: str) -> str:
        """The project's own image for GPUs; for CPUs the one of `image_recipe`."""
        return (
            f"headfirst/sglang-cpu:{self.version}" if device == "cpu" else f"lmsysorg/sglang:v{self.version}"
        )

    def image_version(self, image: str) -> str | None:
        """Tags are v0.5.23, v0.5.23-cu129, v0.5.23.post1-rocm700 and the like."""
        return image_tags.release(image)

    def image_recipe(self, device: str) -> ImageRecipe | None:
        """The published packages of the newest version for CPUs; images for GPUs come from the registry."""
        if device != "cpu" or self.version != specification.VERSIONS[0]:
            return None
        from headfirst.decide.engines.sglang.cpu_image import RECIPE

        return RECIPE

    def cuda(self, image: str) -> str:
        """Tags end in -cu129 or -cu130; the plain one has CUDA 13 since 0.5.11."""
        return image_tags.cuda(image) or ("13.0" if image == self.default_image("cuda") else "")

    def check_arguments(self, arguments: Sequence[str]) -> Arguments:
        """Check against the parser of this SGLang version."""
        return argument_check.check(specification.load(self.version), arguments)

    def support_problems(
        self, checkpoint: Checkpoint, gpu: Gpu | None, task: Task, values: Mapping[str, Any]
    ) -> list[str]:
        """By the tables of this version, and what its code asserts."""
        return support.problems(self.version, checkpoint, gpu, task, values)

    def fp8_capability(self, checkpoint: Checkpoint) -> tuple[int, int] | None:
        """Mixtures of experts need FP8 units; the layers of dense models run as weight-only FP8 from 8.0 on
        (layers/quantization/fp8_utils.py, can_auto_enable_marlin_fp8)."""
        return (8, 0) if checkpoint.moe is None else FP8_CAPABILITY

    def layout(self, tensor: int, pipeline: int, values: Mapping[str, Any]) -> Layout:
        """Data-parallel attention and expert parallelism come from the user's arguments."""
        return sglang_layout.layout(tensor, pipeline, values)

    def layout_problems(
        self,
        checkpoint: Checkpoint,
        machines: Machines,
        layout: Layout,
        *,
        dtype: str,
        values: Mapping[str, Any],
    ) -> list[str]:
        """What SGLang asserts when it loads the model."""
        return sglang_layout.problems(self.version, checkpoint, machines, layout, dtype=dtype, values=values)

    def pipeline_layers(self, stage: int, stages: int, layers: int, environment: Mapping[str, str]) -> range:
        """As get_pp_indices of sglang/srt/distributed/utils.py."""
        return sglang_layout.pipeline_layers(stage, stages, layers, environment)

    def memory_use(
        self, checkpoint: Checkpoint, gpu: Gpu, layout: Layout, values: Mapping[str, Any]
    ) -> MemoryUse:
        """Reserved memory by SGLang's own formula."""
        return memory.memory_use(checkpoint, gpu, layout, values)

    def launch(self, request: LaunchRequest) -> Launch:
        """`python3 -m sglang.launch_server …` with NCCL, gloo and SGLang variables."""
        return Launch(launch.argv(request), environment.environment(request))

    def rendezvous_ports(self, request: LaunchRequest) -> Sequence[int]:
        """With data parallelism SGLang takes the six ports after the rendezvous too (PortArgs)."""
        more = 6 if max(request.layout.data, request.layout.attention_data) > 1 else 0
        return range(request.dist_port, request.dist_port + more + 1)

    def config_file(self, *, api_key: str) -> dict[str, str]:
        """Merged by SGLang before its arguments; the file's name must end in .yaml, and a key must
        not begin with '-', which its parser would take for a flag."""
        return {"api-key": api_key}

    def readiness(self, task: Task) -> Readiness:
        """The health paths need no key, whatever the task; 200 means that a token or an embedding was
        computed, 503 that warm-up still runs (entrypoints/http_server.py, health_generate)."""
        return READINESS[task]

    def log(self) -> Mapping[str, Any]:
        """Lines of 0.5.22 and 0.5.23."""
        return log_file.read(Path(__file__).parent)

    def metrics(self) -> Metrics:
        """The same names in all supported versions."""
        return METRICS

    def publishes(self, values: Mapping[str, Any]) -> bool:
        """The plan adds the flag, and no argument takes it back."""
        return True

    def diagnostics(self) -> Diagnostics:
        """SGLang's flags, and the rules of its tuning guide."""
        from headfirst.decide.engines.sglang.diagnosis import DIAGNOSTICS

        return DIAGNOSTICS

    def request_dialect(self, values: Mapping[str, Any]) -> RequestDialect:
        """As sglang/srt/entrypoints defines its requests."""
        return dialect.dialect(values)


ENGINES = tuple(Sglang(version) for version in specification.VERSIONS)
