"""What vLLM's class of a draft model holds on one rank, on torch's meta device.

The question is that of vllm_driver.py. The answers have `draft_bytes`, the parameters of the draft without
the embedding that it then takes from the model, and `token_bytes`, those of a token in the KV cache of both.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import planned_gpu
import vllm_without_gpu


def measured(parser: Any, command: list[str]) -> dict[str, Any]:
    """The sizes of a command's draft and cache."""
    import vllm_driver
    import vllm_kv
    from vllm.model_executor.model_loader import utils

    original, made = utils.initialize_model, []

    def initialize(*words: Any, **options: Any) -> Any:
        made.append(original(*words, **options))
        return made[-1]

    utils.initialize_model = initialize
    try:
        caches = vllm_kv.layers(vllm_driver.configuration(parser, command)).values()
    finally:
        utils.initialize_model = original
    _, draft = made
    sizes = (
        parameter.numel() * parameter.element_size()
        for name, parameter in draft.named_parameters()
        if "embed_tokens" not in name
    )
    token_bytes = sum(cache.page_size_bytes // cache.block_size for cache in caches)
    return {"draft_bytes": sum(sizes), "token_bytes": token_bytes}


def main() -> None:
    """Answers one file of questions."""
    question = planned_gpu.question()
    gpu = question["gpu"]
    name, capability = gpu["name"].removeprefix("NVIDIA "), tuple(gpu["capability"])
    vllm_without_gpu.stand_in(name, capability, gpu["memory_mib"] >> 10)
    import vllm_arguments  # it imports vllm

    planned_gpu.write(planned_gpu.answers(question, partial(measured, vllm_arguments.make_parser())))


if __name__ == "__main__":
    main()
