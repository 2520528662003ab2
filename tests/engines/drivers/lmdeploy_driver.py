"""What LMDeploy's own code makes of commands: parsed, configured and checked, as before it uses a GPU.

The question is {"gpu": …, "commands": [[word, …], …], "environments": [{…}, …]}, the words those of
containers; the answers are in the same order (planned_gpu.answers).
"""

from __future__ import annotations

from typing import Any

import planned_gpu

# In the engine's image. Not tile_kernels, which only the images for CUDA 13 have (its docker/install.sh).
ABSENT = ("fla", "flash_mla", "deep_gemm", "deep_ep", "fast_hadamard_transform")
# TurboMind's compiled part, which needs CUDA's libraries.
TURBOMIND = ("lmdeploy.turbomind._turbomind", "_turbomind", "_xgrammar")


def configured(command: list[str]) -> dict[str, Any]:
    """The back end, and what its configuration has."""
    from lmdeploy.turbomind import converter

    # What data types a GPU has is in the compiled part.
    converter._get_executable_dtypes = lambda *_words: {"bfloat16", "float16"}
    probe = planned_gpu.probe("lmdeploy")
    arguments, server = probe.read(command)
    assert server["backend"] == arguments.backend, f"{server['backend']} instead of {arguments.backend}"
    probe.configure(arguments, server)
    return {"backend": server["backend"], "tp": server["backend_config"].tp}


def main() -> None:
    """Answers one file of questions."""
    question = planned_gpu.question()
    planned_gpu.install(question["gpu"], [*ABSENT, *TURBOMIND])
    planned_gpu.write(planned_gpu.answers("lmdeploy", question, configured))


if __name__ == "__main__":
    main()
