"""The catalogue's numbers, recomputed from the dimensions that it gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from headfirst.common.safetensors_file import DTYPE_BITS
from headfirst.decide.model import catalogue
from headfirst.decide.model.parameters import parameters, tensors
from headfirst.decide.plan.weights import precision
from together import together

MODELS = {id: model for id in catalogue.ids() if (model := catalogue.lookup(id))}
WEIGHTS = {id: catalogue.resolved(id)["weights"] for id in MODELS}
LISTS = {
    name: json.loads((Path(__file__).parent / f"data/{name}.json").read_text(encoding="utf-8"))
    for name in ("vllm-recipes", "sglang-cookbook", "lmdeploy-models")
}
LISTED = [id for id, weights in WEIGHTS.items() if "parameters" in weights]
STATED = [id for id, weights in WEIGHTS.items() if "published_parameters" in weights]


@together("id", LISTED)
def test_published_parameters_by_dtype_follow_from_the_dimensions(id: str) -> None:
    computed = catalogue._computed(MODELS[id], WEIGHTS[id]).by_dtype
    assert computed == MODELS[id].bytes_by_dtype


@together("id", STATED)
def test_published_totals_follow_from_the_dimensions(id: str) -> None:
    model = MODELS[id]
    counted = sum(tensor.parameters for tensor in tensors(model) or [])
    counted = counted or sum(8 * size // DTYPE_BITS[name] for name, size in model.bytes_by_dtype.items())
    if WEIGHTS[id].get("tied_head_stored"):
        counted += model.vocab_size * model.hidden_size
    assert counted == WEIGHTS[id]["published_parameters"]


@together("id", catalogue.ids())
def test_sizes_agree_with_each_other(id: str) -> None:
    model = MODELS[id]
    headers = model.total_bytes - sum(model.bytes_by_dtype.values())
    assert 0 <= headers < 20_000_000
    assert sum(model.bytes_by_part.values()) == sum(model.bytes_by_dtype.values())
    assert len({shard.name for shard in model.shards}) == len(model.shards) > 0
    assert WEIGHTS[id]["total_bytes_are"].startswith(("published", "computed", "estimated"))


@together("id", [id for id, model in MODELS.items() if model.mla is None])
def test_heads_have_sizes_of_attention_kernels(id: str) -> None:
    """FlashAttention requires a multiple of 8 (csrc/flash_attn/flash_api.cpp)."""
    for kind in ("full", "sliding"):
        kv = MODELS[id].kv(kind)
        assert kv.key_dim % 8 == kv.value_dim % 8 == 0


@pytest.mark.parametrize(
    ("id", "gigabytes"),
    [
        # Sizes of the repositories: what the formula for each format is compared with.
        ("Qwen/Qwen3-32B-AWQ", 19.3),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", 41.6),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", 41.6),
        ("openai/gpt-oss-20b", 13.8),
        ("openai/gpt-oss-120b", 65.2),
        ("moonshotai/Kimi-K2.5", 595.2),
        ("Qwen/Qwen3-235B-A22B-FP8", 236.4),
        ("MiniMaxAI/MiniMax-M2", 230.0),
        # What publishers or their readers state, which dimensions and quantised parts must give.
        ("LiquidAI/LFM2.5-8B-A1B", 16.9),
        ("mistralai/Ministral-3-8B-Instruct-2512", 10.4),
        ("mistralai/Ministral-3-14B-Instruct-2512", 15.7),
        ("moonshotai/Kimi-K3", 1560.9),  # 1453.66 GiB of tensors in a public report (stored file 62826164383)
    ],
)
def test_checkpoints_have_their_published_size(id: str, gigabytes: float) -> None:
    assert MODELS[id].total_bytes / 1e9 == pytest.approx(gigabytes, abs=0.1)


@pytest.mark.parametrize(
    ("id", "dtype", "scheme"),
    [
        ("Qwen/Qwen3-32B-AWQ", "awq", "int4"),
        ("Qwen/Qwen2.5-32B-Instruct-GPTQ-Int4", "gptq", "int4"),
        ("Qwen/Qwen3-32B-FP8", "fp8", "fp8"),
        ("RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w8a8", "compressed-tensors", "int8"),
        ("RedHatAI/Qwen3-32B-quantized.w4a16", "compressed-tensors", "int4"),
        ("RedHatAI/Meta-Llama-3.1-405B-Instruct-FP8", "fp8", "fp8"),
        ("nvidia/Qwen3-235B-A22B-NVFP4", "modelopt", "nvfp4"),
        ("openai/gpt-oss-120b", "mxfp4", "mxfp4"),
        ("MiniMaxAI/MiniMax-M3-MXFP8", "mxfp8", "mxfp8"),
        ("meituan/DeepSeek-R1-Block-INT8", "blockwise_int8", "int8"),
    ],
)
def test_quantisations_are_described(id: str, dtype: str, scheme: str) -> None:
    model = MODELS[id]
    assert model.quantization is not None
    assert (model.dtype, model.quantization.scheme) == (dtype, scheme)


@pytest.mark.parametrize(
    ("id", "title"),
    [
        ("deepseek-ai/DeepSeek-V4-Flash", "FP8+MXFP4"),
        ("nvidia/DeepSeek-V4-Flash-NVFP4", "FP8+NVFP4"),
        ("nvidia/Qwen3.6-27B-NVFP4", "FP8+NVFP4"),
        ("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4", "FP8+NVFP4"),
        ("nvidia/MiniMax-M3-NVFP4", "MXFP8+NVFP4"),
        ("nvidia/GLM-5.2-NVFP4", "NVFP4"),
        ("Qwen/Qwen3-32B-AWQ", "INT4"),
    ],
)
def test_the_title_names_every_scheme(id: str, title: str) -> None:
    assert precision.title(MODELS[id]) == title


def test_variants_differ_from_their_base_in_what_they_change_only() -> None:
    base, awq = MODELS["Qwen/Qwen3-32B"], MODELS["Qwen/Qwen3-32B-AWQ"]
    assert (awq.layers, awq.head_dim, awq.vocab_size) == (base.layers, base.head_dim, base.vocab_size)
    assert base.quantization is None
    assert not MODELS["deepseek-ai/DeepSeek-V3-0324"].note
    # A commit was read for one model: it says nothing of another one.
    assert catalogue.trusted_commit("deepseek-ai/DeepSeek-V3", "huggingface")
    assert catalogue.trusted_commit("deepseek-ai/DeepSeek-V3-0324", "huggingface") is None


def test_tasks() -> None:
    assert MODELS["Qwen/Qwen3-Embedding-8B"].tasks == ("embedding",)
    assert MODELS["Qwen/Qwen3-VL-8B-Instruct"].tasks == ("chat", "vision")
    assert MODELS["Qwen/Qwen3-8B"].tasks == ("chat",)


def test_deepseek_r1_as_published() -> None:
    model = catalogue.lookup("deepseek-ai/DeepSeek-R1")
    assert model is not None
    assert model.bytes_by_dtype["F8_E4M3"] == 680_571_043_840
    assert model.total_bytes == 688_586_727_753
    assert len(model.shards) == 163
    assert model.shards[-1].name == "model-00163-of-000163.safetensors"
    # "more than 1.3 TB" in BF16
    assert 1.368e12 < model.bf16_bytes < 1.370e12
    assert model.remote_code


def test_lookup_ignores_case_as_the_hubs_do() -> None:
    model = catalogue.lookup("qwen/qwen2-7b", revision="master", note="said")
    assert model is not None
    assert (model.id, model.revision, model.note) == ("qwen/qwen2-7b", "master", "said")
    assert catalogue.lookup("nobody/nothing") is None
    # A plan that does not fit tries all of them, and their descriptions took most of its time.
    id = next(iter(MODELS))
    assert catalogue.lookup(id) is catalogue.lookup(id)


@pytest.mark.parametrize(
    ("id", "billions"),
    [
        # Architectures that no table of tensors describes: the number is in the model's name, or on its page.
        ("nvidia/Qwen3.6-27B-NVFP4", 27),
        ("nvidia/Qwen3.6-35B-A3B-NVFP4", 35),
        ("nvidia/Gemma-4-26B-A4B-NVFP4", 26),
        ("Qwen/Qwen3.5-27B", 27),
        ("zai-org/GLM-5-FP8", 744),
        ("deepseek-ai/DeepSeek-V4-Pro", 1600),
    ],
)
def test_parameters_of_other_architectures_follow_from_their_dtypes(id: str, billions: float) -> None:
    assert parameters(MODELS[id]) / 1e9 == pytest.approx(billions, rel=0.04)


def catalogued(name: str) -> list[str]:
    """The ids of a list; LMDeploy's has names of families, with the ids that they mean."""
    ids = LISTS[name]["catalogued"]
    return ids if isinstance(ids, list) else [id for meant in ids.values() for id in meant]


@pytest.mark.parametrize(
    ("name", "least"), [("vllm-recipes", 110), ("sglang-cookbook", 144), ("lmdeploy-models", 68)]
)
def test_models_that_an_engine_lists_are_here_or_have_a_reason(name: str, least: int) -> None:
    known = {id.lower() for id in catalogue.ids()}
    assert [id for id in catalogued(name) if id.lower() not in known] == []
    assert len(catalogued(name)) >= least
    assert [id for id in LISTS[name]["left_out"] if id.lower() in known] == []
    assert all(reason.endswith(".") for reason in LISTS[name]["left_out"].values())


@together("id", [id for id, weights in WEIGHTS.items() if "bf16" in weights])
def test_quantised_parts_are_smaller_than_in_bf16(id: str) -> None:
    stored, plain = WEIGHTS[id]["stored"], WEIGHTS[id]["bf16"]
    assert stored.keys() == plain.keys()
    assert all(sum(sizes.values()) <= plain[part] for part, sizes in stored.items())
    assert sum(sum(sizes.values()) for sizes in stored.values()) < 0.62 * sum(plain.values())
