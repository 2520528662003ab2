"""Tensor and pipeline parallel sizes: chosen, and checked when the user sets them."""

from __future__ import annotations

import pytest
from headfirst.errors import InputError
from headfirst.model import Checkpoint, catalogue
from headfirst.plan.parallel import Machines, Parallel, choose, valid_tensor_sizes


def model(id: str) -> Checkpoint:
    found = catalogue.lookup(id)
    assert found is not None
    return found


R1 = model("deepseek-ai/DeepSeek-R1")


@pytest.mark.parametrize(
    ("id", "machines", "dtype", "expected"),
    [
        ("deepseek-ai/DeepSeek-R1", Machines(4, 8), "bf16", Parallel(32, 1)),
        ("deepseek-ai/DeepSeek-R1", Machines(2, 8), "fp8", Parallel(16, 1)),
        ("deepseek-ai/DeepSeek-R1", Machines(1, 8), "fp8", Parallel(8, 1)),
        # FP8 blocks forbid TP 32: 2048 / 32 = 64
        ("deepseek-ai/DeepSeek-R1", Machines(4, 8), "fp8", Parallel(16, 2)),
        # 128 heads cannot be divided by 24: three stages of eight
        ("deepseek-ai/DeepSeek-R1", Machines(3, 8), "bf16", Parallel(8, 3)),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", Machines(1, 8), "bf16", Parallel(8, 1)),
        # 40 heads and 8 KV heads on 16 GPUs: 40 % 16 != 0
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", Machines(2, 8), "bf16", Parallel(8, 2)),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", Machines(1, 8), "bf16", Parallel(4, 2)),
        ("Qwen/Qwen3-0.6B", Machines(2, None), "bf16", Parallel(2, 1)),
    ],
)
def test_sizes_are_chosen_for_the_machines(
    id: str, machines: Machines, dtype: str, expected: Parallel
) -> None:
    assert choose(model(id), machines, dtype=dtype) == expected


def test_wishes_are_kept() -> None:
    assert choose(R1, Machines(4, 8), dtype="bf16", tensor=8, pipeline=4) == Parallel(8, 4)
    assert choose(R1, Machines(4, 8), dtype="bf16", pipeline=2) == Parallel(16, 2)
    # fewer GPUs than there are, evenly
    assert choose(R1, Machines(4, 8), dtype="bf16", tensor=16) == Parallel(16, 1)


@pytest.mark.parametrize(
    ("machines", "dtype", "tensor", "pipeline", "words"),
    [
        (Machines(3, 8), "bf16", 24, None, "128 attention heads are not divisible by 24"),
        (Machines(2, None), "bf16", 3, None, "3 ranks cannot be spread evenly over 2 nodes"),
        (Machines(2, 8), "bf16", 32, None, "needs 32 GPUs and 2 nodes × 8 GPUs are 16"),
        (Machines(4, 8), "fp8", 32, None, "gives 64, not divisible by the FP8 block of 128"),
        (Machines(1, 8), "bf16", 1, 62, "it needs 62 GPUs"),
        (Machines(2, 8), "bf16", 4, 3, "pipeline stages and 2 nodes do not divide each other"),
        (Machines(1, 8), "bf16", 0, None, "sizes start at 1"),
    ],
)
def test_impossible_wishes_are_refused_with_the_reason(
    machines: Machines, dtype: str, tensor: int, pipeline: int | None, words: str
) -> None:
    with pytest.raises(InputError) as raised:
        choose(R1, machines, dtype=dtype, tensor=tensor, pipeline=pipeline, where="a.ini:7")
    assert words in raised.value.what
    assert raised.value.where == "a.ini:7"
    assert raised.value.hint


def test_the_refusal_names_valid_values() -> None:
    with pytest.raises(InputError) as raised:
        choose(R1, Machines(4, 8), dtype="fp8", tensor=32)
    assert (
        raised.value.hint == "On 4 nodes × 8 GPUs, with pipeline_parallel=1, tensor_parallel can be 4, 8, 16."
    )


def test_kv_heads_divide_or_are_copied() -> None:
    llama = model("deepseek-ai/DeepSeek-R1-Distill-Llama-70B")  # 64 heads, 8 KV heads
    assert valid_tensor_sizes(llama, Machines(1, 64), pipeline=1, dtype="bf16") == [1, 2, 4, 8, 16, 32, 64]
    qwen = model("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B")  # 28 heads, 4 KV heads
    with pytest.raises(InputError, match="4 KV heads can neither be divided by 7"):
        choose(qwen, Machines(1, 8), dtype="bf16", tensor=7)


@pytest.mark.parametrize(
    ("machines", "pipeline", "hint"),
    [
        (Machines(4, 7), None, "tensor_parallel can be 4, 8, 16."),
        (Machines(1, 6), None, "tensor_parallel can be 1, 2, 4."),
        (Machines(3, 1), 1, "no tensor_parallel works there"),
    ],
)
def test_gpus_are_not_left_idle_unasked(machines: Machines, pipeline: int | None, hint: str) -> None:
    with pytest.raises(InputError, match="cannot be spread evenly over all of") as raised:
        choose(R1, machines, dtype="bf16", pipeline=pipeline)
    assert hint in str(raised.value.hint)
