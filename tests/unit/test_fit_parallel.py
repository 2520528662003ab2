"""Tensor and pipeline parallel sizes: chosen, and checked when the user sets them."""

from __future__ import annotations

from typing import Any

import pytest
from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.engines.base import CacheRoom, MemoryUse
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.hardware import gpus
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.sizing import fit
from headfirst.decide.plan.sizing.parallel import LayoutChoice, LayoutChooser, replicas_hint
from known_models import model

ENGINE = engines.get("sglang")
ASKED = ("tensor", "pipeline", "where")


def choose(
    checkpoint: Checkpoint, machines: Machines, values: Any = None, dtype: str = "bf16", **options: Any
) -> Layout:
    wishes = {name: options.pop(name) for name in ASKED if name in options}
    chooser = LayoutChooser(checkpoint, machines, ENGINE, values or {}, dtype, **options)
    return chooser.choose(**wishes).candidate.layout


R1 = model("deepseek-ai/DeepSeek-R1")


@pytest.mark.parametrize(
    ("id", "machines", "dtype", "expected"),
    [
        ("deepseek-ai/DeepSeek-R1", Machines(4, 8), "bf16", Layout(32, 1)),
        ("deepseek-ai/DeepSeek-R1", Machines(2, 8), "fp8", Layout(16, 1)),
        ("deepseek-ai/DeepSeek-R1", Machines(1, 8), "fp8", Layout(8, 1)),
        # FP8 blocks forbid TP 32: 2048 / 32 = 64
        ("deepseek-ai/DeepSeek-R1", Machines(4, 8), "fp8", Layout(16, 2)),
        # 128 heads cannot be divided by 24: three stages of eight
        ("deepseek-ai/DeepSeek-R1", Machines(3, 8), "bf16", Layout(8, 3)),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", Machines(1, 8), "bf16", Layout(8, 1)),
        # 40 heads and 8 KV heads on 16 GPUs: 40 % 16 != 0
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", Machines(2, 8), "bf16", Layout(8, 2)),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", Machines(1, 8), "bf16", Layout(4, data=2)),
        ("Qwen/Qwen3-0.6B", Machines(2, None), "bf16", Layout(2, 1)),
    ],
)
def test_sizes_are_chosen_for_the_machines(id: str, machines: Machines, dtype: str, expected: Layout) -> None:
    assert choose(model(id), machines, dtype=dtype) == expected


def test_wishes_are_kept() -> None:
    assert choose(R1, Machines(4, 8), tensor=8, pipeline=4) == Layout(8, 4)
    assert choose(R1, Machines(4, 8), pipeline=2) == Layout(16, 2)
    # fewer GPUs than there are, evenly
    assert choose(R1, Machines(4, 8), tensor=16) == Layout(16, 1)
    assert choose(R1, Machines(16, 8), dtype="fp8", tensor=8, pipeline=16) == Layout(8, 16)
    assert choose(R1, Machines(16, 8), dtype="fp8", pipeline=16) == Layout(8, 16)


@pytest.mark.parametrize(
    ("machines", "dtype", "tensor", "pipeline", "words"),
    [
        (Machines(3, 8), "bf16", 24, None, "128 attention heads are not divisible by 24"),
        (Machines(2, None), "bf16", 3, None, "3 ranks cannot be spread evenly over 2 nodes"),
        (Machines(2, 8), "bf16", 32, None, "needs 32 GPUs and 2 nodes × 8 GPUs are 16"),
        (Machines(4, 8), "fp8", 32, None, "gives 64, not divisible by the FP8 block of 128"),
        (Machines(4, 8), "fp8", 32, None, "with pipeline_parallel=1, tensor_parallel can be 4, 8, 16."),
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
    assert words in (raised.value.what + str(raised.value.hint))
    assert raised.value.where == "a.ini:7"
    assert raised.value.hint


def test_kv_heads_divide_or_are_copied() -> None:
    llama = model("deepseek-ai/DeepSeek-R1-Distill-Llama-70B")  # 64 heads, 8 KV heads
    sizes = LayoutChooser(llama, Machines(1, 64), ENGINE, {}, "bf16").valid_tensor_sizes(1)
    assert sizes == [1, 2, 4, 8, 16, 32, 64]
    qwen = model("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B")  # 28 heads, 4 KV heads
    with pytest.raises(InputError, match="4 KV heads can neither be divided by 7"):
        choose(qwen, Machines(1, 8), tensor=7)


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
        choose(R1, machines, pipeline=pipeline)
    assert hint in str(raised.value.hint)


def memories(id: str, gpu: str, dtype: str) -> fit.MemoryOf:
    """The memory of a rank with a layout on this GPU."""
    return fit.memory_of(model(id), gpus.find(gpu), ENGINE, dtype=dtype)


@pytest.mark.parametrize(("nodes", "copies"), [(21, "20 of these 21 nodes, with replicas=10"), (100, "=50")])
def test_dozens_of_stages_are_not_chosen_but_replicas_proposed(nodes: int, copies: str) -> None:
    with pytest.raises(InputError, match="cannot be spread evenly") as raised:
        choose(R1, Machines(nodes, 8), dtype="fp8", memory=memories(R1.id, "H100-80G", "fp8"))
    assert "The model fits on 2 nodes" in str(raised.value.hint)
    assert copies in str(raised.value.hint)


def test_stages_are_added_where_the_kv_cache_would_be_short() -> None:
    cache = memories(R1.id, "A100-40G", "bf16")
    assert cache(Layout(64, 1), {}).room.tokens < 32768
    chosen = choose(R1, Machines(8, 8), memory=cache)
    assert chosen == Layout(32, 2)
    assert cache(chosen, {}).room.tokens > 32768


def holding(checkpoint: Checkpoint, tokens: int) -> fit.Memory:
    """A rank whose KV cache holds these."""
    use = MemoryUse({}, 1.0, 1, 1, 0, room=lambda size: CacheRoom(tokens, tokens))
    return fit.Memory(checkpoint, use, weights=0, static=1)


@pytest.mark.parametrize(
    ("whole", "staged", "expected"), [(10, 20, (8, 2)), (20, 10, (16, 1)), (0, 0, (16, 1))]
)
def test_the_layout_with_the_most_room_where_none_has_enough(
    whole: int, staged: int, expected: tuple[int, int]
) -> None:
    llama = model("deepseek-ai/DeepSeek-R1-Distill-Llama-70B")
    rooms = {Layout(16, 1): holding(llama, whole), Layout(8, 2): holding(llama, staged)}
    chosen = choose(llama, Machines(2, 8), memory=lambda layout, values: rooms[layout])
    assert (chosen.tensor, chosen.pipeline) == expected


@pytest.mark.parametrize(
    ("rdma", "expected"), [(True, Layout(16, 1)), (None, Layout(16, 1)), (False, Layout(8, 2))]
)
def test_without_rdma_stages_and_not_tensor_ranks_cross_nodes(rdma: bool | None, expected: Layout) -> None:
    cache = memories(R1.id, "H100-80G", "fp8")
    assert choose(R1, Machines(2, 8), dtype="fp8", rdma=rdma, memory=cache) == expected
    on_cpus = choose(model("Qwen/Qwen3-0.6B"), Machines(2, None), rdma=rdma)
    assert on_cpus == Layout(2, 1)


def test_copies_of_a_replica_within_a_node_are_counted() -> None:
    llama = model("deepseek-ai/DeepSeek-R1-Distill-Llama-70B")
    values = {"dp_size": 2}
    assert choose(llama, Machines(1, 8), values) == Layout(4, 1, data=2)
    with pytest.raises(InputError):  # eight GPUs are all in use by one copy
        choose(llama, Machines(1, 8), values, tensor=8)


@pytest.mark.parametrize(
    ("gpu", "dtype", "expected"), [("H200", "fp8", 1), ("H100-80G", "fp8", 2), ("A100-80G", "bf16", None)]
)
def test_the_fewest_nodes_that_serve_the_model(gpu: str, dtype: str, expected: int | None) -> None:
    cache = memories(R1.id, gpu, dtype)
    chooser = LayoutChooser(R1, Machines(4, 8), ENGINE, {}, dtype, memory=cache)
    assert chooser.fewer_nodes() == expected


def test_how_many_replicas_the_nodes_make() -> None:
    whole = "The model fits on 1 node: replicas=4 serves 4 copies of it."
    assert replicas_hint(Machines(4, 8), 1) == whole
    assert "4 of these 5 nodes, with replicas=2" in replicas_hint(Machines(5, 8), 2)


def test_what_was_preferred_and_not_chosen_is_stated() -> None:
    def chosen(nodes: int, gpu: str, values: dict[str, Any]) -> LayoutChoice:
        its = {"memory": memories(R1.id, gpu, "fp8"), "preset": "throughput"}
        return LayoutChooser(R1, Machines(nodes, 8), ENGINE, values, "fp8", **its).choose()

    choice = chosen(1, "H200", {"ep_size": 4})
    assert choice.candidate.rule is None
    assert choice.rejected == (
        "DP attention and expert parallelism is not chosen: engine_args sets --ep-size.",
        "Expert parallelism is not chosen: engine_args sets --ep-size.",
    )
    assert "leaves the most room for the KV cache" in chosen(2, "A100-40G", {}).reason
