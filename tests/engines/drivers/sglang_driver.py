"""What SGLang's own code makes of commands: parsed, resolved and checked, as at a start before it uses a GPU.

The question is {"gpu": …, "commands": [[word, …], …], "environments": [{…}, …]}, the words those of
containers; the answers are in the same order (planned_gpu.answers).
"""

from __future__ import annotations

from typing import Any

import planned_gpu

# Of CUDA alone; each is in the engine's image.
ABSENT = ("sgl_kernel", "flashinfer", "deep_gemm", "pynvml", "flash_attn")


def resolved(command: list[str]) -> dict[str, Any]:
    """The settings after all of SGLang's own defaults and checks."""
    return dict(planned_gpu.probe("sglang").read(command).resolved_dict())


def main() -> None:
    """Answers one file of questions."""
    question = planned_gpu.question()
    planned_gpu.install(question["gpu"], ABSENT)
    planned_gpu.write(planned_gpu.answers("sglang", question, resolved))


if __name__ == "__main__":
    main()
