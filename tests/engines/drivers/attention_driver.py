"""Whether SGLang's model classes divide their attention by --attn-dp-size, on torch's meta device.

The question is {architecture: config.json}; the answer has the architectures whose class can be made of it,
with whether each attention layer has more heads on a rank where each rank is a group of its own.
"""

from __future__ import annotations

from typing import Any

import planned_gpu
from model_folder import model_folder
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.layers.radix_linear_attention import RadixLinearAttention
from sglang_weights import built, gpu, without_kernels

RANKS = 2


def heads(folder: str, groups: int) -> dict[str, int]:
    """Heads of queries on rank 0, by the name of the attention layer."""
    with gpu("H200"), built(folder, {"tp_size": RANKS, "attn_dp_size": groups}) as model:
        counts = {}
        for name, layer in model.named_modules():
            if isinstance(layer, RadixAttention):
                counts[name] = layer.tp_q_head_num
            elif isinstance(layer, RadixLinearAttention):
                counts[name] = layer.num_q_heads
        return counts


def divided(config: dict[str, Any]) -> bool | None:
    """None where the class cannot be made, or has no attention layer of SGLang's."""
    with model_folder({"config": config}) as folder:
        try:
            together = heads(folder, 1)
        except Exception as error:  # whatever the class misses in a config of the catalogue
            print(config["architectures"], type(error).__name__, error)
            return None
        try:
            apart = heads(folder, RANKS)
        except ValueError as refusal:
            assert "DP attention" in str(refusal), refusal
            return False
        return all(apart[name] > count for name, count in together.items()) if together else None


def main() -> None:
    """Answers one file of questions."""
    without_kernels()
    answers = {name: divided(config) for name, config in planned_gpu.question().items()}
    planned_gpu.write({name: answer for name, answer in answers.items() if answer is not None})


if __name__ == "__main__":
    main()
