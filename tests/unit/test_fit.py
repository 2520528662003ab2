"""Memory fit, term by term, against SGLang 0.5.23's formula and against published measurements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from headfirst.decide import engines
from headfirst.decide.engines.base import MemoryUse, room_by_token
from headfirst.decide.engines.layout import Layout
from headfirst.decide.hardware import gpus
from headfirst.decide.hardware.gpus import MIB
from headfirst.decide.model import catalogue
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.parameters import tensors
from headfirst.decide.plan.sizing.fit import fit, weight_bytes_per_rank
from headfirst.decide.plan.types import Fit
from known_models import model
from together import together

GIB = 1 << 30
ENGINE = engines.get("sglang")


def r1(gpu: str, tensor: int, pipeline: int = 1, *, dtype: str, **arguments: Any) -> Fit:
    return fit(
        model("deepseek-ai/DeepSeek-R1"),
        gpus.find(gpu),
        ENGINE.layout(tensor, pipeline, arguments),
        ENGINE,
        dtype=dtype,
        arguments=arguments,
    )


def test_r1_in_bf16_on_four_nodes_of_eight_a100() -> None:
    result = r1("A100-80G", 32, dtype="bf16")
    assert result.fits
    assert {name: size // MIB for name, size in result.terms.items()} == {
        "metadata": 512,
        "activations": 12288,  # 1.5 × 8192
        "parallel_buffers": 4096,  # 1024 × 32 / 8
        "decode_graphs": 1024,  # 2 × 512
        "prefill_graphs": 1536,  # MLA
        "outside_engine": 1991,  # 2560 × 0.762, and what the fraction's three digits leave
    }
    assert result.reserved_bytes == 19456 * MIB
    assert result.static_fraction == 0.762
    assert result.kv_bytes_per_token == 61 * (512 + 64) * 2 == 70272
    # 41.2 "GB" (GiB) per GPU in the log of sglang #3784; the rest are copies of kv_b_proj for MLA.
    assert result.weight_bytes_per_rank == pytest.approx(41.2 * GIB, rel=0.01)
    # 0.762 × (80 − 2.5) GiB − weights; operations.md reads 62,464 MiB as 62.4 GiB and so says 320k.
    assert result.kv_pool_bytes == pytest.approx(18.1 * GIB, rel=0.01)
    assert result.kv_tokens == pytest.approx(277_000, rel=0.01)


@pytest.mark.parametrize("name", engines.names())
@pytest.mark.parametrize("id", ["deepseek-ai/DeepSeek-R1", "Qwen/Qwen3-8B", "Qwen/Qwen3.6-27B"])
def test_the_terms_add_up_to_the_memory(name: str, id: str) -> None:
    engine = engines.get(name)
    checkpoint = model(id)
    gpu = gpus.find("H200-141G")
    assert gpu is not None
    result = fit(checkpoint, gpu, engine.layout(8, 1, {}), engine, dtype=checkpoint.dtype, arguments={})
    assert result.kv_pool_bytes
    parts = result.weight_bytes_per_rank + sum(result.terms.values()) + result.kv_pool_bytes
    assert parts == pytest.approx(gpu.memory_bytes, abs=2)


def test_r1_does_not_fit_on_sixteen_a100_in_bf16_and_on_eight_h100_in_fp8() -> None:
    for result in (r1("A100-80G", 16, dtype="bf16"), r1("H100-80G", 8, dtype="fp8")):
        assert (result.fits, result.kv_tokens) == (False, 0)
        assert result.weight_bytes_per_rank > 79 * GIB
        assert "would hold" in result.reason
    assert "would hold 79.3 GiB of weights" in result.reason


@pytest.mark.parametrize(("gpu", "tensor"), [("H20", 16), ("H100", 16), ("H200", 8), ("B200", 8)])
def test_r1_in_fp8_fits_where_sglang_says_so(gpu: str, tensor: int) -> None:
    result = r1(gpu, tensor, dtype="fp8")
    assert result.fits
    assert result.kv_tokens is not None
    assert result.kv_tokens > 100_000


def test_fp8_weights_on_eight_h200_match_a_log() -> None:
    # sglang #3416: 58.12 GiB free after loading; 137.9 GiB were free before (InferenceX #2128).
    assert r1("H200", 8, dtype="fp8").weight_bytes_per_rank == pytest.approx((137.9 - 58.12) * GIB, rel=0.02)


def test_pipeline_stages_share_layers_and_capture_no_prefill_graphs() -> None:
    whole, staged = r1("H100", 16, dtype="fp8"), r1("H100", 16, 2, dtype="fp8")
    assert staged.weight_bytes_per_rank == pytest.approx(whole.weight_bytes_per_rank / 2, rel=0.05)
    assert staged.kv_bytes_per_token == 31 * (512 + 64) * 2
    assert "prefill_graphs" not in staged.terms


def test_users_fraction_replaces_the_formula() -> None:
    llama = model("deepseek-ai/DeepSeek-R1-Distill-Llama-70B")
    arguments = {"mem_fraction_static": 0.8}
    result = fit(llama, gpus.find("A100-80G"), Layout(8, 1), ENGINE, dtype="bf16", arguments=arguments)
    assert result.static_fraction == 0.8
    assert result.reserved_bytes == 16384 * MIB
    assert result.kv_bytes_per_token == 1 * 2 * 128 * 80 * 2  # 8 KV heads over 8 GPUs
    # All but norms and biases is divided by eight.
    assert result.weight_bytes_per_rank == pytest.approx(llama.total_bytes / 8, rel=0.001)


def test_kv_heads_are_copied_when_there_are_fewer_than_gpus() -> None:
    qwen = model("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B")  # 2 KV heads
    result = fit(qwen, gpus.find("L20"), Layout(4, 1), ENGINE, dtype="bf16", arguments={})
    assert result.kv_bytes_per_token == 1 * 2 * 128 * 28 * 2
    assert result.weight_bytes_per_rank > qwen.total_bytes / 4


@pytest.mark.parametrize(
    ("arguments", "term", "mib"),
    [
        ({"chunked_prefill_size": 4096}, "activations", 6144),
        ({"chunked_prefill_size": -1}, "activations", 24576),  # max_prefill_tokens 16384
        ({"chunked_prefill_size": 512}, "activations", 3072),  # at least 2048 tokens
        ({"max_running_requests": 64}, "decode_graphs", 128),
        ({"cuda_graph_max_bs_decode": 100, "max_running_requests": 64}, "decode_graphs", 200),
        ({"cuda_graph_bs_decode": [1, 8, 40]}, "decode_graphs", 80),
        ({"speculative_algorithm": "EAGLE"}, "decode_graphs", 1024),  # its 48 requests are set later
        ({"attn_dp_size": 8}, "data_parallel_attention", 18432),  # 512 × 8 × 4.5
        ({"moe_a2a_backend": "deepep"}, "deepep_buffers", 2048),
        ({"moe_a2a_backend": "deepep"}, "prefill_graphs", 2560),
    ],
)
def test_arguments_change_the_terms(arguments: dict[str, Any], term: str, mib: int) -> None:
    assert r1("H20", 16, dtype="fp8", **arguments).terms[term] == mib * MIB


@pytest.mark.parametrize(
    ("role", "captured", "left_out", "activations"),
    [
        ("prefill", "prefill_graphs", "decode_graphs", 12288),
        ("decode", "decode_graphs", "prefill_graphs", 9000),
    ],
)
def test_a_replica_of_prefill_or_decode_captures_its_own_graphs(
    role: str, captured: str, left_out: str, activations: int
) -> None:
    # 1.5 MiB a token: of a chunk of 8192 that is read, or of 3 draft tokens of 2000 requests that generate.
    arguments = {"disaggregation_mode": role, "max_running_requests": 2000, "speculative_num_draft_tokens": 3}
    terms = r1("H20", 16, dtype="fp8", **arguments).terms
    assert captured in terms
    assert left_out not in terms
    assert terms["activations"] == activations * MIB


def test_without_graphs_the_floor_of_ten_gib_fills_up() -> None:
    result = r1("H20", 8, dtype="fp8", disable_cuda_graph=True, chunked_prefill_size=2048)
    assert result.terms["floor_10_gib"] == (10240 - 512 - 3072 - 1024) * MIB
    assert result.reserved_bytes == 10240 * MIB


def test_small_gpus_have_no_floor_and_small_defaults() -> None:
    qwen = model("Qwen/Qwen3-0.6B")
    result = fit(qwen, gpus.find("T4"), Layout(1, 1), ENGINE, dtype="bf16", arguments={})
    assert result.terms["activations"] == 3072 * MIB
    assert result.terms["decode_graphs"] == 16 * MIB
    assert result.terms["prefill_graphs"] == 8 * 42 * MIB  # 42 sizes up to 2048 tokens
    assert "floor_10_gib" not in result.terms


@pytest.mark.parametrize("id", ["deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B"])
def test_without_headers_the_files_sizes_are_divided_in_proportion(id: str) -> None:
    """A rank that has all of it has what the files have, as where the headers were read."""
    with_headers = model(id)
    without = with_headers.model_copy(update={"bytes_by_part": {}})
    first, second = (
        fit(each, gpus.find("H200"), Layout(1, 1), ENGINE, dtype=each.dtype, arguments={})
        for each in (with_headers, without)
    )
    assert second.weight_bytes_per_rank == pytest.approx(first.weight_bytes_per_rank, rel=0.05)


def test_speculation_loads_the_extra_layer_and_its_cache() -> None:
    plain, drafting = (r1("H20", 16, dtype="fp8"), r1("H20", 16, dtype="fp8", speculative_algorithm="EAGLE"))
    assert drafting.kv_bytes_per_token == plain.kv_bytes_per_token + (512 + 64) * 2
    assert drafting.weight_bytes_per_rank > plain.weight_bytes_per_rank


@pytest.mark.parametrize(
    ("id", "growth"),
    [
        ("nvidia/Qwen3-235B-A22B-NVFP4", 1.0),
        # Marlin's kernels on every GPU: scales of two bytes (arg_groups/model_overrides/nemotron_h.py).
        ("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4", 5 / 4.5),
        ("nvidia/Qwen3.6-35B-A3B-NVFP4", 5 / 4.5),
    ],
)
def test_experts_of_w4a16_keep_their_scales_in_two_bytes_on_blackwell(id: str, growth: float) -> None:
    gpu, layout = gpus.find("B200-180G"), Layout(1)
    assert ENGINE.memory_use(model(id), gpu, layout, {}).expert_growth == growth


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_cache_in_fp32_takes_twice_the_bytes(engine: str) -> None:
    """kv_cache_dtype=auto is the type in which the engine computes."""
    qwen, gpu, its = model("Qwen/Qwen3-8B"), gpus.find("H100-80G"), engines.get(engine)
    plain, computed = (
        fit(kept, gpu, Layout(1), its, dtype=kept.dtype, arguments={}).kv_bytes_per_token
        for kept in (qwen, qwen.computed_in("fp32"))
    )
    assert computed == 2 * plain


def test_arguments_of_the_cache() -> None:
    assert r1("H20", 16, dtype="fp8", kv_cache_dtype="fp8_e4m3").kv_bytes_per_token == 70272 // 2
    assert r1("H20", 16, dtype="fp8", max_total_tokens=5000).kv_tokens == 5000
    # A pool that is shorter than the context is stated.
    assert "at most 1,000 tokens" in r1("A100-80G", 32, dtype="bf16", max_total_tokens=1000).reason
    result = r1("A100-80G", 32, dtype="bf16", max_total_tokens=1000, context_length=800)
    assert "at most" not in result.reason


PLAIN = MemoryUse({}, 1.0, 1, 1, 0, room_by_token(1))


def held(checkpoint: Checkpoint, layout: Layout, dtype: str | None = None, **use: Any) -> int:
    """Bytes of weights on the fullest rank."""
    return weight_bytes_per_rank(
        checkpoint,
        layout,
        dtype=dtype or checkpoint.dtype,
        use=replace(PLAIN, attention_tensor=layout.tensor, **use),
    )


@pytest.mark.parametrize(
    ("id", "gib"),
    [
        ("Qwen/Qwen3-32B-AWQ", 18.0),  # BF16 would be 61
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", 38.8),
        ("RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w8a8", 67.7),
        ("nvidia/Qwen3-235B-A22B-NVFP4", 124),
        ("openai/gpt-oss-120b", 60.8),
        ("moonshotai/Kimi-K2.5", 554.3),
        ("meituan/DeepSeek-R1-Block-INT8", 627.6),  # without the layer of multi-token prediction
    ],
)
def test_quantised_checkpoints_count_with_their_own_bytes(id: str, gib: float) -> None:
    assert held(model(id), Layout(1)) / GIB == pytest.approx(gib, rel=0.01)


def test_an_awq_checkpoint_of_32_billion_serves_on_one_l40s() -> None:
    awq = model("Qwen/Qwen3-32B-AWQ")
    result = fit(awq, gpus.find("L40S"), Layout(1), ENGINE, dtype="awq", arguments={})
    assert result.fits
    assert result.weight_bytes_per_rank / GIB == pytest.approx(18.0, abs=0.1)
    assert result.weight_bytes_total == awq.total_bytes


@together("id", catalogue.ids())
def test_one_rank_holds_all_and_ranks_hold_no_less_than_their_share(id: str) -> None:
    checkpoint = model(id)
    unloaded = checkpoint.bytes_by_part.get("head", 0) if checkpoint.tied_embeddings else 0
    whole = sum(checkpoint.bytes_by_part.values()) - unloaded
    assert held(checkpoint, Layout(1), draft_layers=1) == pytest.approx(whole, rel=1e-6)
    for layout in (Layout(4), Layout(4, 2), Layout(8)):
        share = held(checkpoint, layout, draft_layers=1)
        # One stage has the embedding, and the last one the head: much of a small model.
        ends = max(checkpoint.bytes_by_part.get(part, 0) for part in ("embedding", "head"))
        ends = ends / layout.tensor if layout.pipeline > 1 else 0
        assert whole / layout.world * 0.999 <= share < whole / layout.world * 1.5 + ends


def test_an_unknown_architecture_is_divided_by_its_parts() -> None:
    checkpoint = model("Qwen/Qwen3-32B").model_copy(
        update={
            "architecture": "NobodysForCausalLM",
            "bytes_by_part": {"embedding": 100, "vision": 40, "attention": 400, "experts": 1600, "head": 60},
            "tied_embeddings": False,
        }
    )
    assert held(checkpoint, Layout(1)) == 2200
    assert held(checkpoint, Layout(4)) == 550
    assert held(checkpoint, Layout(1, 2)) == 1000 + 140  # the first stage has embedding and vision tower
    tied = checkpoint.model_copy(update={"tied_embeddings": True})
    assert held(tied, Layout(1)) == 2140  # a head that the file has a second time is not loaded
    # Experts may be spread over the ranks of several data-parallel groups.
    assert held(checkpoint, Layout(4, data=2, expert=8)) == 550 - 200


def test_a_checkpoint_that_is_quantised_while_it_is_loaded() -> None:
    plain = model("Qwen/Qwen3-32B")
    ends = plain.bytes_by_part["embedding"] + plain.bytes_by_part["head"]
    expected = ends + (plain.total_bytes - ends) / 2
    assert held(plain, Layout(1), "fp8") == pytest.approx(expected, rel=0.001)


def test_conversion_to_bf16_doubles_fp8_and_drops_the_scales() -> None:
    r1 = model("deepseek-ai/DeepSeek-R1")
    whole = sum(r1.bf16_bytes_by_part.values())
    assert held(r1, Layout(1), "bf16", draft_layers=1) == pytest.approx(whole, rel=1e-6)
    assert whole == pytest.approx(r1.bf16_bytes, rel=1e-4)  # on disk with headers of 163 files


@pytest.mark.parametrize(
    ("id", "growth"),
    [("openai/gpt-oss-20b", 3.0), ("openai/gpt-oss-120b", 3.5), ("RedHatAI/Qwen3-32B-FP8-dynamic", 1.9)],
)
def test_a_converted_checkpoint_takes_what_its_parameters_take_in_bf16(id: str, growth: float) -> None:
    checkpoint = model(id)
    plain = 2 * sum(tensor.parameters for tensor in tensors(checkpoint) or [])
    whole = held(checkpoint, Layout(1), "bf16", draft_layers=1)
    assert whole == pytest.approx(plain, rel=1e-3)
    assert whole > growth * checkpoint.total_bytes
    experts = checkpoint.converted.bytes_by_part.get("experts", 0)
    assert experts == pytest.approx(4 * checkpoint.bytes_by_part.get("experts", 0) * 16 / 17, rel=0.01)
    assert held(checkpoint.converted, Layout(4), "bf16") == held(checkpoint, Layout(4), "bf16")


def test_unknown_gpu_gives_sizes_only() -> None:
    result = fit(model("Qwen/Qwen2-7B"), None, Layout(2, 1), ENGINE, dtype="bf16", arguments={})
    assert result.fits is None
    assert result.kv_tokens is None
    assert result.weight_bytes_per_rank == pytest.approx(15_231_233_024 / 2, rel=0.001)
