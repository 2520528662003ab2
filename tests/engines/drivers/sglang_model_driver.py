"""What SGLang's model classes make of commands: all layers of one rank, on torch's meta device.

The question is that of sglang_driver.py; the stand-ins are those of tools/sglang_weights.py.
"""

from __future__ import annotations

from typing import Any

import planned_gpu
import sglang_memory
import sglang_weights


def made(command: list[str]) -> dict[str, Any]:
    """The number of the model's tensors."""
    from sglang.srt.server_args import prepare_server_args

    arguments = prepare_server_args(command)
    arguments.device, arguments.skip_tokenizer_init = "cuda", True
    arguments.pp_size = arguments.nnodes = 1  # the layers of all stages, without a rendezvous
    with sglang_weights.model(arguments) as model:
        return {"tensors": sum(1 for _ in model.parameters())}


def main() -> None:
    """Answers one file of questions."""
    question = planned_gpu.question()
    gpu = question["gpu"]
    sglang_weights.without_kernels()
    with sglang_memory.machine(tuple(gpu["capability"]), gpu["memory_mib"]):
        planned_gpu.write(planned_gpu.answers(question, made))


if __name__ == "__main__":
    main()
