"""config.json of real models, as their families write it: described, with the keys that a plan reads."""

from __future__ import annotations

from typing import Any

import pytest
from headfirst.common.errors import InputError
from headfirst.common.safetensors_file import StoredTensor
from headfirst.common.untrusted import UntrustedError
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.config import WeightFiles, from_config
from headfirst.decide.model.measured import Part, part_of
from model_configs import config
from together import together


def described(config: dict[str, Any], *tensors: StoredTensor, **more: Any) -> Checkpoint:
    """The checkpoint of `config` and one shard with `tensors`."""
    weights = WeightFiles(sum(tensor.end - tensor.start for tensor in tensors), (), [tensors])
    return from_config(config, id="a/b", revision=None, weights=weights, source="folder", where="x", **more)


def tensor(name: str, dtype: str, size: int = 1000) -> StoredTensor:
    return StoredTensor(name, dtype, (), 0, size)


LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
# The published file leaves out what the class has as a default.
GEMMA_3_4B = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
}
HUNYUAN_A13B = {
    "architectures": ["HunYuanMoEV1ForCausalLM"],
    "attention_head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 3072,
    "max_position_embeddings": 32768,
    "model_type": "hunyuan_v1_moe",
    "moe_intermediate_size": [3072] * 32,
    "moe_layer_num_skipped": 0,
    "moe_topk": [8] * 32,
    "num_attention_heads": 32,
    "num_experts": 64,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_shared_expert": [1] * 32,
    "tie_word_embeddings": True,
    "vocab_size": 128167,
}
CHATGLM3 = {
    "architectures": ["ChatGLMModel"],
    "auto_map": {"AutoConfig": "configuration_chatglm.ChatGLMConfig"},
    "ffn_hidden_size": 13696,
    "hidden_size": 4096,
    "kv_channels": 128,
    "model_type": "chatglm",
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "num_attention_heads": 32,
    "num_layers": 28,
    "padded_vocab_size": 65024,
    "seq_length": 8192,
    "torch_dtype": "float16",
    "vocab_size": 64798,
}
LLAMA_4 = {
    "architectures": ["Llama4ForConditionalGeneration"],
    "model_type": "llama4",
    "text_config": {
        "attention_chunk_size": 8192,
        "head_dim": 128,
        "hidden_size": 5120,
        "interleave_moe_layer_step": 2,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "max_position_embeddings": 1048576,
        "model_type": "llama4_text",
        "num_attention_heads": 40,
        "num_experts_per_tok": 1,
        "num_hidden_layers": 48,
        "num_key_value_heads": 8,
        "num_local_experts": 128,
        "vocab_size": 202048,
    },
    "vision_config": {},
}


def moe(model: Checkpoint) -> tuple[int, int, int, int, int]:
    assert model.moe is not None
    found = model.moe
    return (
        found.experts,
        found.experts_per_token,
        found.intermediate_size,
        found.shared_intermediate_size,
        len(found.dense_layers),
    )


def test_qwen3_vl() -> None:
    model = described(config("Qwen--Qwen3-VL-235B-A22B-Instruct"))
    assert (model.layers, model.kv_heads, model.head_dim, model.vocab_size) == (94, 4, 128, 151936)
    assert moe(model) == (128, 8, 1536, 0, 0)
    assert model.vision
    assert model.tasks == ("chat", "vision")
    assert set(model.layer_types) == {"full"}


def test_kimi_k2_5() -> None:
    kimi = {
        **config("moonshotai--Kimi-K2.5"),
        "auto_map": {"AutoConfig": "configuration_kimi_k25.KimiK25Config"},
    }
    model = described(kimi, tensor("language_model.model.layers.1.mlp.experts.0.up.weight_packed", "I32"))
    assert model.architecture == "KimiK25ForConditionalGeneration"
    assert model.mla is not None
    assert model.mla.kv_lora_rank == 512
    assert moe(model) == (384, 8, 2048, 2048, 1)
    assert model.remote_code
    assert model.dtype == "compressed-tensors"
    assert model.quantization is not None
    kind = model.quantization
    assert (kind.scheme, kind.bits, kind.group_size) == ("int4", 4, 32)
    assert model.quantization_name == "compressed-tensors int4"
    assert not model.convertible


def test_gemma_3() -> None:
    model = described(GEMMA_3_4B)
    assert (model.attention_heads, model.kv_heads, model.head_dim, model.vocab_size) == (8, 4, 256, 262208)
    assert model.tied_embeddings
    assert model.max_context == 131072
    assert model.sliding_window == 1024
    assert model.layer_types[:7] == ("sliding",) * 5 + ("full", "sliding")
    assert model.layer_types.count("full") == 34 // 6


def test_hunyuan() -> None:
    model = described(HUNYUAN_A13B)
    assert moe(model) == (64, 8, 3072, 3072, 0)
    assert (model.head_dim, model.tied_embeddings) == (128, True)
    dense = {**HUNYUAN_A13B, "num_experts": 1}
    assert described(dense).moe is None


def test_chatglm() -> None:
    model = described(CHATGLM3)
    assert (model.layers, model.kv_heads, model.head_dim) == (28, 2, 128)
    assert (model.vocab_size, model.intermediate_size, model.max_context) == (65024, 13696, 8192)
    assert model.dtype == "fp16"
    assert model.tasks == ("chat",)


def test_llama_4() -> None:
    model = described(LLAMA_4)
    assert model.intermediate_size == 16384
    assert moe(model) == (128, 1, 8192, 8192, 24)
    assert model.has_experts(1)
    assert not model.has_experts(0)
    assert model.layer_types[:4] == ("chunked", "chunked", "chunked", "full")
    assert model.sliding_window == 8192


def test_qwen_3_5() -> None:
    model = described(config("Qwen--Qwen3.5-27B"))
    assert model.layer_types.count("linear") == 48
    assert model.recurrent is not None
    assert (model.recurrent.kind, model.recurrent.heads, model.recurrent.conv_kernel) == ("gdn", 48, 4)
    assert model.recurrent.channels == 2 * 16 * 128 + 48 * 128
    assert model.nextn_layers == 1


@together(
    ("change", "expected"),
    [
        ({"model_type": "mistral", "sliding_window": 4096}, {"sliding": 32}),
        ({"model_type": "mistral", "sliding_window": None}, {"full": 32}),
        ({"sliding_window": 4096, "use_sliding_window": False}, {"full": 32}),
        (
            {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 28},
            {"full": 28, "sliding": 4},
        ),
        ({"layer_types": ["sliding_attention", "full_attention"] * 16}, {"sliding": 16, "full": 16}),
        ({"layer_types": ["mamba", "unheard of"]}, {"linear": 1, "full": 31}),
        ({"hybrid_override_pattern": "M-M*" * 8}, {"linear": 16, "none": 8, "full": 8}),
        ({"attn_type_list": [0, 0, 0, 1] * 8}, {"linear": 24, "full": 8}),
        ({"full_attention_interval": 4}, {"linear": 24, "full": 8}),
        ({"layer_types": "full"}, {"full": 32}),
        ({"layer_types": ["mamba"] * 32}, {"full": 32}),  # a token without bytes ended in a traceback
        ({"hybrid_override_pattern": "M-" * 16}, {"full": 32}),
        ({"layer_types": [["x"]] * 100}, {"full": 32}),
    ],
)
def test_layer_types(change: dict[str, Any], expected: dict[str, int]) -> None:
    found = described({**LLAMA, **change}).layer_types
    assert {kind: found.count(kind) for kind in set(found)} == expected


_ROPE = {"max_position_embeddings": 32768, "original_max_position_embeddings": 4096}


@pytest.mark.parametrize(
    ("change", "longest", "short"),
    [
        ({"rope_scaling": {"type": "longrope"}}, 32768, 4096),
        ({"rope_scaling": {"type": "su"}}, 32768, 4096),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 32768, None),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 6.0}}, 196608, None),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, 65536, None),
        ({"rope_scaling": {"type": "linear", "factor": 8.0}, "model_type": "gemma3_text"}, 32768, None),
        ({"rope_scaling": {"type": "dynamic", "factor": "6"}}, 32768, None),
        ({"rope_scaling": {"type": "dynamic", "factor": 1e300}}, 32768, None),
        ({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0}}}, 32768, None),
    ],
)
def test_scaled_positions(change: dict[str, Any], longest: int, short: int | None) -> None:
    model = described({**LLAMA, **_ROPE, **change})
    assert (model.max_context, model.short_context) == (longest, short)


@pytest.mark.parametrize(
    ("change", "dense"),
    [
        ({"num_local_experts": 8, "num_experts_per_tok": 2}, ()),
        ({"num_experts": 8, "decoder_sparse_step": 2}, tuple(range(0, 32, 2))),
        ({"num_experts": 8, "mlp_only_layers": [3]}, (3,)),
        ({"n_routed_experts": 8, "first_k_dense_replace": 2}, (0, 1)),
    ],
)
def test_layers_without_experts(change: dict[str, Any], dense: tuple[int, ...]) -> None:
    model = described({**LLAMA, **change})
    assert model.moe is not None
    assert model.moe.dense_layers == dense
    assert model.moe.first_dense_layers == (2 if dense == (0, 1) else 1 if dense[:1] == (0,) else 0)


BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def grouped(form: str, *weights: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A config of compressed-tensors with a group of layers for each of `weights`."""
    groups = {f"group_{number}": {"weights": one, **more} for number, one in enumerate(weights)}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}


NVFP4 = {"num_bits": 4, "type": "float", "group_size": 16}
MODELOPT = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16,
            "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}  # fmt: skip


@together(
    ("config", "packed", "dtype", "expected"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "I32", "awq", "awq int4"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "I32", "gptq", "gptq int8"),
        (
            grouped(
                "int-quantized",
                {"num_bits": 8, "type": "int"},
                input_activations={"num_bits": 8, "dynamic": True},
            ),
            *("I8", "compressed-tensors", "compressed-tensors int8"),
        ),
        (
            grouped("nvfp4-pack-quantized", NVFP4),
            *("U8", "compressed-tensors", "compressed-tensors nvfp4"),
        ),
        (
            BLOCKS | {"quant_method": "blockwise_int8", "activation_scheme": "dynamic"},
            *("I8", "blockwise_int8", "blockwise_int8 int8"),
        ),
        (MODELOPT, "U8", "modelopt", "modelopt nvfp4 fp8"),
        ({"quant_method": "mxfp4"}, "U8", "mxfp4", "mxfp4"),
        ({"quant_method": "fbgemm_fp8"}, "F8_E4M3", "fp8", "fbgemm_fp8 fp8"),
        # Its weights have FP8's type, and other scales: engines load it by its own method.
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, "F8_E4M3", "modelopt", "modelopt mxfp8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "U8", "bitsandbytes", "bitsandbytes int4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "I8", "bitsandbytes", "bitsandbytes int8"),
        ({}, "F8_E4M3", "fp8", ""),
        ({}, "I8", "int8", ""),
    ],
)
def test_quantisations(config: dict[str, Any], packed: str, dtype: str, expected: str) -> None:
    model = described(
        {**LLAMA, "quantization_config": config},
        tensor("model.layers.0.mlp.up_proj.weight", packed, 4000),
        # Scales of NVFP4 are FP8, which does not make the checkpoint an FP8 one.
        tensor("model.layers.0.mlp.up_proj.weight_scale", "F8_E4M3" if packed == "U8" else "BF16", 500),
    )
    assert model.dtype == dtype
    kind = model.quantization
    said = (str(kind), kind.kv_cache) if kind else ()
    assert " ".join(word for word in said if word) == expected
    assert model.convertible is (config.get("quant_method") in ("mxfp4", "fbgemm_fp8"))


def test_modelopts_own_file_is_used_where_config_json_is_silent() -> None:
    packed = tensor("model.layers.0.mlp.up_proj.weight", "U8")
    assert described(LLAMA, packed, quantization_config=MODELOPT).quantization_name == "modelopt nvfp4"
    assert described(LLAMA, packed).quantization is None


def test_modelopts_own_file_comes_before_the_language_models_config() -> None:
    """Kimi-K2.6-NVFP4 has the int4 of the original in text_config."""
    int4 = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {}}
    config = {"architectures": ["KimiK25ForConditionalGeneration"]}
    config["text_config"] = {**LLAMA, "quantization_config": int4}  # type: ignore[assignment]
    packed = tensor("model.layers.0.mlp.up_proj.weight", "U8")
    assert described(config, packed, quantization_config=MODELOPT).quantization_name == "modelopt nvfp4"
    assert described(config, packed).dtype == "compressed-tensors"


@pytest.mark.parametrize(
    ("config", "more", "expected"),
    [
        # DeepSeek-V4-Flash
        (BLOCKS, {"expert_dtype": "fp4"}, "fp8 and mxfp4"),
        # nvidia/DeepSeek-V4-Flash-NVFP4
        (
            BLOCKS | {"quant_algo": "MIXED_PRECISION", "moe_quant_algo": "NVFP4"},
            {"expert_dtype": "fp4"},
            "fp8 and nvfp4",
        ),
        # A scheme for each group of layers
        (
            grouped("mixed-precision", {"num_bits": 8, "type": "float"}, NVFP4),
            {},
            "compressed-tensors fp8 and nvfp4",
        ),
        # nvidia/Qwen3.6-27B-NVFP4
        (
            {
                "quant_algo": "MIXED_PRECISION",
                "quant_method": "modelopt",
                "quantized_layers": {
                    "a": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
                    "b": {"quant_algo": "FP8"},
                },
            },
            {},
            "modelopt fp8 and nvfp4",
        ),
    ],
)
def test_a_mixture_is_named_and_not_converted(
    config: dict[str, Any], more: dict[str, Any], expected: str
) -> None:
    whole = {**LLAMA, "quantization_config": config, **more}
    model = described(whole, tensor("model.layers.0.mlp.up_proj.weight", "F8_E4M3"))
    assert model.quantization_name == expected
    assert model.quantization is not None
    assert (model.quantization.scheme, model.convertible) == ("", False)
    assert model.quantization.obstacle.startswith("it has weights in ")
    assert model.dtype == model.quantization.method


def test_a_config_left_over_after_a_conversion() -> None:
    config = {**LLAMA, "quantization_config": BLOCKS}
    model = described(config, tensor("model.layers.0.mlp.up_proj.weight", "BF16"))
    assert (model.dtype, model.quantization, model.weight_block_size) == ("bf16", None, None)
    assert described(config, tensor("model.layers.0.mlp.up_proj.weight", "F8_E4M3")).convertible


@pytest.mark.parametrize(
    ("architecture", "more", "expected"),
    [
        ("LlamaForCausalLM", {}, ("chat",)),
        ("Qwen3ForCausalLM", {"sentence_transformers": True}, ("embedding",)),
        ("XLMRobertaModel", {}, ("embedding",)),
        ("XLMRobertaForSequenceClassification", {}, ("rerank", "reward")),
        ("Qwen2ForRewardModel", {}, ("reward",)),
    ],
)
def test_tasks_of_architectures(architecture: str, more: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert described({**LLAMA, "architectures": [architecture]}, **more).tasks == expected


@together(
    ("name", "part"),
    [
        ("model.embed_tokens.weight", Part.EMBEDDING),
        ("transformer.embedding.word_embeddings.weight", Part.EMBEDDING),
        ("embed_tokens.weight", Part.EMBEDDING),
        ("lm_head.weight", Part.HEAD),
        ("transformer.output_layer.weight", Part.HEAD),
        ("output.weight", Part.HEAD),
        ("model.layers.3.self_attn.q_proj.qweight", Part.ATTENTION),
        ("transformer.encoder.layers.3.self_attention.query_key_value.weight", Part.ATTENTION),
        ("model.layers.0.linear_attn.in_proj.weight", Part.ATTENTION),
        ("model.layers.3.mlp.experts.7.up_proj.weight", Part.EXPERTS),
        ("model.layers.3.mlp.experts.gate_up_proj_blocks", Part.EXPERTS),
        ("model.layers.3.block_sparse_moe.experts.0.w1.weight", Part.EXPERTS),
        ("model.layers.3.mlp.shared_experts.up_proj.weight", Part.DENSE),
        ("model.layers.3.mlp.gate.weight", Part.DENSE),
        ("model.layers.3.input_layernorm.weight", Part.DENSE),
        ("model.norm.weight", Part.DENSE),
        ("model.layers.61.mlp.experts.0.up_proj.weight", Part.NEXTN),
        ("model.layers.61.embed_tokens.weight", Part.NEXTN),
        ("mtp.layers.0.mlp.up_proj.weight", Part.NEXTN),
        ("model.visual.blocks.61.attn.qkv.weight", Part.VISION),
        ("vision_tower.encoder.blocks.1.mlp.fc0.weight", Part.VISION),
        ("multi_modal_projector.linear_1.weight", Part.VISION),
        ("language_model.model.layers.3.self_attn.q_proj.weight", Part.ATTENTION),
    ],
)
def test_parts_by_the_names_of_tensors(name: str, part: Part) -> None:
    assert part_of(name, 61) is part


@pytest.mark.parametrize(
    ("stated", "names", "layers"),
    [
        ({}, ("mtp.layers.0.mlp.up_proj.weight", "mtp.fc.weight"), 1),
        ({}, ("model.mtp.layers.0.norm.weight", "model.mtp.layers.2.norm.weight"), 2),
        ({"num_nextn_predict_layers": 1}, ("mtp.0.attn.wq.weight",), 1),
        ({"num_nextn_predict_layers": 1}, ("model.layers.32.norm.weight",), 1),
        ({"num_nextn_predict_layers": 1}, (), 0),
        ({}, (), 0),
    ],
    ids=["qwen3-next", "mimo-v2", "deepseek-v4", "deepseek-v3", "removed by a quantiser", "none"],
)
def test_draft_layers_are_those_that_the_tensors_show(
    stated: dict[str, int], names: tuple[str, ...], layers: int
) -> None:
    model = described(
        LLAMA | stated,
        tensor("model.embed_tokens.weight", "BF16", 10),
        *(tensor(name, "BF16", 10) for name in names),
    )
    assert model.nextn_layers == layers
    assert described(LLAMA | stated).nextn_layers == stated.get("num_nextn_predict_layers", 0)


IN_FP8 = (
    tensor("model.embed_tokens.weight", "BF16", 10),
    tensor("model.layers.0.self_attn.q_proj.weight", "F8_E4M3", 20),
    tensor("model.layers.0.self_attn.q_proj.weight_scale_inv", "F32", 4),
    tensor("lm_head.weight", "BF16", 10),
)


def test_bytes_by_part_are_all_bytes() -> None:
    model = described(LLAMA, *IN_FP8)
    assert model.bytes_by_part == {"embedding": 10, "attention": 24, "head": 10}
    assert model.bytes_by_dtype == {"BF16": 20, "F8_E4M3": 20, "F32": 4}
    assert model.bf16_bytes_by_part == {}


def test_bytes_after_a_conversion_are_counted_by_part() -> None:
    config = {**LLAMA, "quantization_config": BLOCKS}
    model = described(config, *IN_FP8)
    assert model.bf16_bytes_by_part == {"embedding": 10, "attention": 40, "head": 10}
    assert model.bf16_bytes == model.total_bytes + 16
    packed = described(
        {**LLAMA, "quantization_config": {"quant_method": "mxfp4"}},
        tensor("model.embed_tokens.weight", "BF16", 10),
        tensor("model.layers.0.mlp.experts.down_proj_blocks", "U8", 160),
        tensor("model.layers.0.mlp.experts.down_proj_scales", "U8", 10),
    )
    assert packed.convertible
    assert packed.bf16_bytes_by_part == {"embedding": 10, "experts": 640}


@together(
    "change",
    [
        {"text_config": {"text_config": {"text_config": {}}}},
        {"text_config": {"hidden_size": 1}},
        {"n_routed_experts": [8, "x"], "num_experts_per_tok": "x"},
        {"quantization_config": {"quant_method": "awq", "bits": "four"}},
        {"quantization_config": {"quant_method": "x\x1b[2J"}},
        {"quantization_config": {"quant_method": "a", "config_groups": {"g": 5}}},
        {"quantization_config": {"quant_method": "a", "config_groups": {"g": {"weights": 5}}}},
        {"quantization_config": {"quant_algo": ["FP8"]}},
        {"quantization_config": {"quantization": 5}},
        {"sliding_window": "wide"},
        {"num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": -1},
        {"full_attention_interval": 4, "linear_num_value_heads": 4},
    ],
)
def test_hostile_configs(change: dict[str, Any]) -> None:
    with pytest.raises((UntrustedError, InputError)):
        described({**LLAMA, **change})
