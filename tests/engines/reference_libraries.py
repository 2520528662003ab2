"""Converted checkpoints against the libraries of the formats: the same bits.

test_reference_libraries.py runs it in an environment that has them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch as safetensors_torch
import torch
import transformers
from compressed_tensors import compressors, quantization
from headfirst.node.weights.convert.convert_folder import convert
from headfirst.node.weights.proof.deep_check import check_samples

BLOCK: dict[str, Any] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
TENSOR: dict[str, Any] = {"quant_method": "fp8", "weight_block_size": None, "activation_scheme": "static"}
POWERS = {**BLOCK, "scale_fmt": "ue8m0"}


def codes(*shape: int) -> Any:
    """Random FP8 without NaN, whose payloads differ between libraries; all codes occur."""
    generator = torch.Generator().manual_seed(len(shape))
    found = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    found.view(-1)[:256] = torch.arange(256, dtype=torch.uint8)
    return torch.where((found & 0x7F) == 0x7F, found ^ 1, found).view(torch.float8_e4m3fn)


def scales(*shape: int) -> Any:
    """Over a wide range: results are subnormal, normal and infinite."""
    generator = torch.Generator().manual_seed(7)
    exponents = torch.randint(-130, 120, shape, generator=generator)
    return torch.ldexp(torch.rand(shape, generator=generator) + 1, exponents)


def converted(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Any:
    source, target = folder / "from", folder / "to"
    source.mkdir()
    safetensors_torch.save_file(dict(tensors), source / "model.safetensors", metadata={"format": "pt"})
    (source / "config.json").write_text(json.dumps(config))
    convert(source, target)
    assert check_samples(target) == {}
    return safetensors_torch.load_file(target / "model.safetensors")


def same(ours: Any, theirs: Any) -> bool:
    assert ours.dtype == theirs.dtype == torch.bfloat16
    return bool(torch.equal(ours.view(torch.int16), theirs.contiguous().view(torch.int16)))


FP8_CASES = {
    "block": (BLOCK, (384, 256), scales(3, 2)),
    "block, bf16 scales": (BLOCK, (384, 256), scales(3, 2).to(torch.bfloat16)),
    "block, fused experts": (BLOCK, (3, 256, 128), scales(3, 2, 1)),
    "block, ue8m0 as e8m0": (POWERS, (384, 256), scales(3, 2).to(torch.float8_e8m0fnu)),
    "block, ue8m0 as fp32": (POWERS, (384, 256), scales(3, 2).to(torch.float8_e8m0fnu).to(torch.float32)),
    "block, ue8m0 as bytes": (POWERS, (2048, 2048), torch.arange(256, dtype=torch.uint8).view(16, 16)),
    "tensor": (TENSOR, (384, 256), torch.tensor(3.1e-4)),
    "tensor, bf16 scale": (TENSOR, (384, 256), torch.tensor(3.1e-4, dtype=torch.bfloat16)),
}


@pytest.mark.parametrize("case", FP8_CASES)
def test_fp8_is_what_transformers_dequantises(case: str, tmp_path: Path) -> None:
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    quantization, shape, scale = FP8_CASES[case]
    weight = codes(*shape)
    name = "experts.up_proj" if len(shape) > 2 else "a.weight"
    tensors = {name: weight, f"{name}_scale_inv": scale}
    result = converted(tmp_path, {"quantization_config": quantization}, tensors)
    theirs = Fp8Dequantize(None)._dequantize_one(weight, scale, torch.bfloat16)
    finite = ~torch.isnan(theirs)  # zero times infinity
    assert same(result[name][finite], theirs[finite])
    assert torch.isnan(result[name][~finite]).all()


CHANNEL = scales(384, 1)
COMPRESSED = {
    "tensor": ("tensor", None, scales(1)),
    "channel": ("channel", None, CHANNEL),
    "channel, bf16 scales": ("channel", None, CHANNEL.to(torch.bfloat16)),
    "block": ("block", [128, 128], scales(3, 2)),
}


@pytest.mark.parametrize("case", COMPRESSED)
def test_compressed_tensors_is_what_the_library_decompresses(case: str, tmp_path: Path) -> None:
    strategy, block, scale = COMPRESSED[case]
    arguments = {"num_bits": 8, "type": "float", "strategy": strategy, "block_structure": block}
    scheme = {"targets": ["Linear"], "weights": arguments, "input_activations": None}
    config = {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"group_0": scheme},
        "ignore": ["lm_head"],
    }
    parsed = quantization.QuantizationConfig(**config)  # the library reads this config too
    state = {"weight": codes(384, 256), "weight_scale": scale}
    theirs = compressors.BaseCompressor.get_value_from_registry("float-quantized").decompress(
        state, parsed.config_groups["group_0"]
    )["weight"]
    tensors = {f"a.{name}": tensor for name, tensor in state.items()}
    result = converted(tmp_path, {"quantization_config": config}, tensors)
    assert same(result["a.weight"], theirs.to(torch.bfloat16))


def test_fbgemm_is_what_its_product_in_transformers_multiplies_by(tmp_path: Path) -> None:
    """FbgemmFp8Linear's product without CUDA, of the identity: zeros have no sign after it."""
    weight, scale = codes(384, 256), torch.rand(384, 1) * 1e-3
    identity, ones = torch.eye(256).to(torch.float8_e4m3fn), torch.ones(256, 1)
    theirs = torch._scaled_mm(
        identity, weight.t(), scale_a=ones, scale_b=scale.t().contiguous(), out_dtype=torch.bfloat16
    )
    config = {"quantization_config": {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}}
    result = converted(tmp_path, config, {"a.weight": weight, "a.weight_scale": scale})["a.weight"]
    assert same(result + 0.0, theirs.t() + 0.0)


def test_every_scale_and_code_of_mxfp4_is_what_transformers_makes(tmp_path: Path) -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    generator = torch.Generator().manual_seed(0)
    blocks = torch.randint(0, 256, (2, 512, 3, 16), dtype=torch.uint8, generator=generator)
    exponents = torch.arange(256, dtype=torch.uint8).repeat(12).view(2, 512, 3)
    config = {"quantization_config": {"quant_method": "mxfp4"}}
    result = converted(tmp_path, config, {"e.down_proj_blocks": blocks, "e.down_proj_scales": exponents})
    assert same(result["e.down_proj"], convert_moe_packed_tensors(blocks, exponents))


def tiny_gpt_oss() -> Any:
    return transformers.GptOssConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        vocab_size=128,
        layer_types=["sliding_attention", "full_attention"],
        max_position_embeddings=128,
        sliding_window=16,
        pad_token_id=0,
    )


def test_transformers_loads_a_converted_gpt_oss_and_it_answers_the_same(tmp_path: Path) -> None:
    """The packed checkpoint, dequantised by transformers, and our BF16 one, loaded as any other model."""
    torch.manual_seed(0)
    config = tiny_gpt_oss()
    model = transformers.GptOssForCausalLM(config).to(torch.bfloat16)
    tensors = {}
    for name, tensor in model.state_dict().items():
        if not name.endswith(("gate_up_proj", "down_proj")):
            tensors[name] = tensor.clone().contiguous()
            continue
        experts, inner, outer = tensor.shape
        tensors[f"{name}_blocks"] = torch.randint(
            0, 256, (experts, outer, inner // 32, 16), dtype=torch.uint8
        )
        tensors[f"{name}_scales"] = torch.randint(118, 123, (experts, outer, inner // 32), dtype=torch.uint8)
    document = {**config.to_dict(), "architectures": ["GptOssForCausalLM"]}
    document["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    document.pop("dtype", None)
    converted(tmp_path, document, tensors)
    packed = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "from",
        quantization_config=transformers.Mxfp4Config(dequantize=True),
        dtype=torch.bfloat16,
    )
    ours, found = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "to", dtype="auto", output_loading_info=True
    )
    assert not found["missing_keys"] and not found["unexpected_keys"] and not found["mismatched_keys"]
    assert ours.dtype == torch.bfloat16
    theirs = packed.state_dict()
    assert ours.state_dict().keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.state_dict().items())
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        logits = ours(tokens).logits
        assert torch.isfinite(logits).all()
        assert torch.equal(logits, packed(tokens).logits)
