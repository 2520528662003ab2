"""SGLang as one of the engines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from headfirst.engines import argument_check
from headfirst.engines.base import Arguments, LaunchRequest, MemoryUse, Readiness
from headfirst.engines.sglang import environment, launch, memory, specification
from headfirst.model.checkpoint import Checkpoint
from headfirst.plan.gpus import Gpu
from headfirst.plan.parallel import Parallel


class Sglang:
    """SGLang of the pinned version; see headfirst.engines.base.Engine for what each method answers."""

    name = "sglang"
    version = specification.VERSION
    # The health paths need no key; 200 means that a token was generated, 503 that warm-up still runs.
    readiness = Readiness(path="/health_generate", chat_path="/v1/chat/completions", auth=False)

    def default_image(self, device: str) -> str:
        """The project's own image for GPUs; for CPUs the one that headfirst.images builds."""
        return (
            f"headfirst/sglang-cpu:{self.version}" if device == "cpu" else f"lmsysorg/sglang:v{self.version}"
        )

    def cuda(self, image: str) -> str:
        """Tags end in -cu129 or -cu130; the plain one has CUDA 13 since 0.5.11."""
        if found := re.search(r"-cu(\d+)(\d)\b", image):
            return f"{found[1]}.{found[2]}"
        return "13.0" if image == self.default_image("cuda") else ""

    def launch_argv(self, request: LaunchRequest) -> list[str]:
        """`python3 -m sglang.launch_server …` for this rank."""
        return launch.argv(request)

    def environment(self, request: LaunchRequest) -> dict[str, str]:
        """NCCL, gloo and SGLang variables for this rank."""
        return environment.environment(request)

    def check_arguments(self, arguments: Sequence[str]) -> Arguments:
        """Check against the parser of this SGLang version."""
        return argument_check.check(specification.load(), arguments)

    def memory_use(
        self, checkpoint: Checkpoint, gpu: Gpu, parallel: Parallel, values: Mapping[str, Any]
    ) -> MemoryUse:
        """Reserved memory by SGLang's own formula."""
        return memory.memory_use(checkpoint, gpu, parallel, values)

    def config_file(self, *, api_key: str) -> dict[str, str]:
        """Merged by SGLang before its arguments; the file's name must end in .yaml, and a key must
        not begin with '-', which its parser would take for a flag."""
        return {"api-key": api_key}
