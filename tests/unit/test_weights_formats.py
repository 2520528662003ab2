"""Every format that is converted: values against ml_dtypes, names, what is dropped, proof and refusals."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from headfirst.common.convertible import NotConvertibleError, read_format
from headfirst.common.errors import InputError, NotReadyError
from headfirst.common.safetensors_file import read_shard
from headfirst.node.weights.convert.conversion import Conversion
from headfirst.node.weights.convert.convert_folder import convert
from headfirst.node.weights.convert.convert_shard import STRIP
from headfirst.node.weights.proof.deep_check import check_samples
from headfirst.node.weights.proof.samples import load_samples
from together import together
from weights_checkpoints import BF16, Array, bits_equal, fp8_weight, load, reference, scales, write_checkpoint

Bits = npt.NDArray[np.uint16]
SINGLE = "model.safetensors"
BLOCK: dict[str, Any] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
POWERS = {**BLOCK, "scale_fmt": "ue8m0"}
TENSOR: dict[str, Any] = {"quant_method": "fp8", "activation_scheme": "static"}
TRANSFORMERS = {**TENSOR, "weight_block_size": None}
FBGEMM: dict[str, Any] = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}
MXFP4: dict[str, Any] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
W = fp8_weight(300, 200)


def compressed(strategy: str, block: list[int] | None = None, **more: object) -> dict[str, Any]:
    weights = {"type": "float", "num_bits": 8, "symmetric": True, "strategy": strategy}
    groups = {"group_0": {"targets": ["Linear"], "weights": {**weights, "block_structure": block}}}
    form = {"quant_method": "compressed-tensors", "format": "float-quantized"}
    return {**form, "config_groups": groups, **more}


def in_bf16(
    scale: npt.NDArray[np.float32], *shapes: tuple[int, ...]
) -> tuple[Array, npt.NDArray[np.float32]]:
    """Scales as BF16 stores them, and what they mean."""
    stored = scale.astype(BF16)
    of_it, meant = shapes or (scale.shape, scale.shape)
    return stored.reshape(of_it), stored.astype(np.float32).reshape(meant)


def powers_of_two(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """fp32 of e8m0 bytes, by ml_dtypes."""
    return codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)


ROWS, BLOCKS = scales(300, 200, block=(1, 200)), scales(300, 200)
ONE = np.array([3e-4], np.float32)
BYTES = np.random.default_rng(3).integers(0, 255, (3, 2), dtype=np.uint8)
EXPERTS = fp8_weight(300, 200, 4).reshape(3, 100, 200)
# Scales as they are stored, and fp32 blocks (rows, columns) of the matrix that they mean.
CASES: dict[str, tuple[dict[str, Any], str, Array, npt.NDArray[np.float32], tuple[int, int]]] = {
    "ue8m0 in fp32": (POWERS, "_inv", powers_of_two(BYTES), powers_of_two(BYTES), (128, 128)),
    "ue8m0 in a byte": (POWERS, "_inv", BYTES, powers_of_two(BYTES), (128, 128)),
    "compressed-tensors channel": (compressed("channel"), "", ROWS, ROWS, (1, 200)),
    "compressed-tensors channel, bf16": (compressed("channel"), "", *in_bf16(ROWS), (1, 200)),
    "compressed-tensors channel, flat": (compressed("channel"), "", ROWS[:, 0], ROWS, (1, 200)),
    "compressed-tensors tensor": (compressed("tensor"), "", ONE, ONE.reshape(1, 1), (300, 200)),
    "compressed-tensors block": (compressed("block", [128, 128]), "", BLOCKS, BLOCKS, (128, 128)),
    "fbgemm": (FBGEMM, "", ROWS, ROWS, (1, 200)),
    "fp8 tensor, vLLM": (TENSOR, "", ONE.reshape(()), ONE.reshape(1, 1), (300, 200)),
    "fp8 tensor, transformers": (TRANSFORMERS, "_inv", *in_bf16(ONE, (), (1, 1)), (300, 200)),
}


def converted(
    folder: Path, quantization: Mapping[str, Any], tensors: Mapping[str, Array]
) -> dict[str, Array]:
    write_checkpoint(folder / "from", {SINGLE: tensors}, {"quantization_config": dict(quantization)})
    convert(folder / "from", folder / "to")
    assert json.loads((folder / "to" / "config.json").read_text()) == {"torch_dtype": "bfloat16"}
    return load(folder / "to" / SINGLE)


@pytest.mark.parametrize("case", CASES)
def test_fp8_with_every_layout_of_scales(case: str, tmp_path: Path) -> None:
    quantization, ending, stored, scale, block = CASES[case]
    result = converted(tmp_path, quantization, {"a.weight": W, f"a.weight_scale{ending}": stored})
    assert result.keys() == {"a.weight"}
    assert bits_equal(result["a.weight"].view(np.uint16), reference(W, scale, block))
    assert check_samples(tmp_path / "to") == {}


def as_e8m0(path: Path, name: str) -> None:
    """Give a tensor of bytes the type F8_E8M0, which safetensors' numpy does not write."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    header[name]["dtype"] = "F8_E8M0"
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])


def test_scales_of_the_type_e8m0_with_nan(tmp_path: Path) -> None:
    codes = np.array([[0, 1], [127, 254], [255, 130]], np.uint8)
    tensors = {"a.weight": W, "a.weight_scale_inv": codes}
    write_checkpoint(tmp_path / "from", {SINGLE: tensors}, {"quantization_config": POWERS})
    as_e8m0(tmp_path / "from" / SINGLE, "a.weight_scale_inv")
    convert(tmp_path / "from", tmp_path / "to")
    result = load(tmp_path / "to" / SINGLE)["a.weight"].view(np.uint16)
    assert bits_equal(result, reference(W, powers_of_two(codes)))
    assert check_samples(tmp_path / "to") == {}


@pytest.mark.parametrize("scale_type", ["F8_E8M0", "U8"])
def test_bytes_are_scales_only_where_the_config_says_so(scale_type: str, tmp_path: Path) -> None:
    tensors = {"a.weight": W, "a.weight_scale_inv": np.ones((3, 2), np.uint8)}
    write_checkpoint(tmp_path / "from", {SINGLE: tensors}, {"quantization_config": BLOCK})
    if scale_type == "F8_E8M0":
        as_e8m0(tmp_path / "from" / SINGLE, "a.weight_scale_inv")
    with pytest.raises(InputError, match=rf"a\.weight_scale_inv: .*type {scale_type}"):
        convert(tmp_path / "from", tmp_path / "to")


def test_fused_experts_have_blocks_of_their_own(tmp_path: Path) -> None:
    """Qwen3-VL-MoE: three dimensions, no `.weight`; 100 rows are no multiple of 128."""
    name = "model.layers.0.mlp.experts.gate_up_proj"
    stored = np.stack([scales(100, 200, seed) for seed in range(3)])
    result = converted(tmp_path, BLOCK, {name: EXPERTS, f"{name}_scale_inv": stored})[name]
    assert result.shape == EXPERTS.shape
    for expert in range(3):
        expected = reference(EXPERTS[expert], stored[expert])
        assert bits_equal(result[expert].view(np.uint16), expected)
    assert check_samples(tmp_path / "to") == {}


def test_a_tensor_of_several_strips_with_one_scale(tmp_path: Path) -> None:
    weight = fp8_weight(3 * STRIP // 2048 + 5, 2048)
    result = converted(tmp_path, TENSOR, {"a.weight": weight, "a.weight_scale": ONE})["a.weight"]
    assert bits_equal(result.view(np.uint16), reference(weight, ONE.reshape(1, 1), weight.shape))
    for sample in load_samples(tmp_path / "to")[0].samples:
        assert len(sample.codes) <= 128 * 128
    assert check_samples(tmp_path / "to") == {}


def test_the_indexer_of_deepseek_v32_keeps_what_is_not_fp8(tmp_path: Path) -> None:
    prefix = "model.layers.0.self_attn.indexer."
    kept = {
        f"{prefix}k_norm.weight": np.ones(128, np.float32),
        f"{prefix}k_norm.bias": np.zeros(128, np.float32),
        f"{prefix}weights_proj.weight": np.ones((4, 256), BF16),
    }
    fp8 = {f"{prefix}{name}.weight": fp8_weight(128, 256, seed) for seed, name in enumerate(("wk", "wq_b"))}
    stored = {f"{name}_scale_inv": scales(128, 256) for name in fp8}
    result = converted(tmp_path, POWERS, {**kept, **fp8, **stored})
    assert result.keys() == {*kept, *fp8}
    for name, tensor in kept.items():
        assert (result[name].dtype, result[name].tobytes()) == (tensor.dtype, tensor.tobytes())
    for name, tensor in fp8.items():
        assert bits_equal(result[name].view(np.uint16), reference(tensor, scales(128, 256)))


@pytest.mark.parametrize(
    ("quantization", "name"),
    [
        (compressed("tensor"), "a.input_scale"),
        (compressed("tensor", kv_cache_scheme={"num_bits": 8, "type": "float"}), "self_attn.k_scale"),
        (compressed("tensor"), "self_attn.v_scale"),
        (compressed("tensor"), "self_attn.k_proj.output_scale"),
        (TENSOR, "a.input_scale"),
        (TENSOR, "a.activation_scale"),
        (TENSOR, "experts.gate_up_proj_activation_scale"),
        ({**FBGEMM}, "a.input_scale_ub"),
    ],
)
def test_scales_of_what_is_quantised_at_run_time_are_dropped(
    quantization: dict[str, Any], name: str, tmp_path: Path
) -> None:
    scale = ROWS if quantization["quant_method"] == "fbgemm_fp8" else ONE
    tensors = {"a.weight": W, "a.weight_scale": scale, name: ONE, "lm_head.weight": np.ones((2, 2), BF16)}
    assert converted(tmp_path, quantization, tensors).keys() == {"a.weight", "lm_head.weight"}


def mxfp4(experts: int, rows: int, groups: int, seed: int = 0) -> tuple[Array, npt.NDArray[np.uint8]]:
    """Blocks and scales; every scale from 0 to 255 occurs where there is room."""
    rng = np.random.default_rng(seed)
    exponents = rng.integers(0, 256, (experts, rows, groups), dtype=np.uint8)
    exponents.reshape(-1)[:256] = np.arange(min(256, exponents.size))
    return rng.integers(0, 256, (experts, rows, groups, 16), dtype=np.uint8), exponents


def mxfp4_reference(blocks: Array, exponents: npt.NDArray[np.uint8]) -> Bits:
    """BF16 bits [experts, 32 * groups, rows] by ml_dtypes, in float64 up to the last step."""
    codes = np.stack([blocks & 15, blocks >> 4], -1).reshape(*blocks.shape[:3], 32)
    with np.errstate(over="ignore"):
        values = np.ldexp(FP4[codes], exponents.astype(np.int32)[..., None] - 127).astype(BF16)
    experts, rows, groups = exponents.shape
    return values.reshape(experts, rows, groups * 32).transpose(0, 2, 1).view(np.uint16)


# The last two are larger than what is held of an expert, and its strips: several parts.
@pytest.mark.parametrize("shape", [(3, 300, 2), (1, 1, 1), (2, 65, 5), (1, 4096, 70), (1, 40_000, 3)])
def test_mxfp4_is_transposed_and_named_as_the_engines_load_it(
    shape: tuple[int, int, int], tmp_path: Path
) -> None:
    name = "model.layers.0.mlp.experts.down_proj"
    blocks, exponents = mxfp4(*shape)
    kept = {f"{name}_bias": np.ones((3, 5), BF16), "lm_head.weight": np.ones((2, 2), BF16)}
    tensors = {f"{name}_blocks": blocks, f"{name}_scales": exponents, **kept}
    result = converted(tmp_path, MXFP4, tensors)
    assert result.keys() == {name, *kept}
    assert result[name].shape == (shape[0], 32 * shape[2], shape[1])
    assert np.array_equal(result[name].view(np.uint16), mxfp4_reference(blocks, exponents))
    assert len(load_samples(tmp_path / "to")[0].samples) == 64
    assert check_samples(tmp_path / "to") == {}


def test_a_wrong_value_of_mxfp4_is_found(tmp_path: Path) -> None:
    blocks, exponents = mxfp4(2, 64, 3)
    converted(tmp_path, MXFP4, {"e.up_blocks": blocks, "e.up_scales": exponents})
    tensor = read_shard(tmp_path / "to" / SINGLE).tensors["e.up"]
    sample = load_samples(tmp_path / "to")[0].samples[0]
    with (tmp_path / "to" / SINGLE).open("r+b") as file:
        file.seek(tensor.start + 2 * ((sample.row + 31) * 64 + sample.column))
        file.write(b"\x12\x34")
    wrong = check_samples(tmp_path / "to")[SINGLE]
    assert f"row {sample.row}, column {sample.column} of tensor e.up" in wrong


def test_blocks_and_scales_in_two_shards(tmp_path: Path) -> None:
    blocks, exponents = mxfp4(2, 64, 3)
    shards = {
        "model-1.safetensors": {"e.up_blocks": blocks},
        "model-2.safetensors": {"e.up_scales": exponents},
    }
    write_checkpoint(tmp_path / "from", shards, {"quantization_config": MXFP4})
    convert(tmp_path / "from", tmp_path / "to", keep_source=False)
    assert not list((tmp_path / "from").glob("*.safetensors"))
    assert [path.name for path in (tmp_path / "to").glob("*.safetensors")] == ["model-1.safetensors"]
    index = json.loads((tmp_path / "to" / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == {"e.up": "model-1.safetensors"}
    _, changed = convert(tmp_path / "from", tmp_path / "to", keep_source=False)
    assert not changed
    assert check_samples(tmp_path / "to") == {}


def test_mxfp4_needs_almost_four_times_the_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 10**9
    write_checkpoint(tmp_path / "from", {SINGLE: {"a": ONE}}, {"quantization_config": MXFP4})
    sizes = {"config.json": 1, "model.safetensors.index.json": 1, SINGLE: size}
    for free, enough in ((3.7, False), (9.0, True)):
        usage = type("Usage", (), {"free": int(free * size)})
        monkeypatch.setattr(
            "headfirst.node.weights.files.shutil.disk_usage", lambda _path, usage=usage: usage
        )
        conversion = Conversion(tmp_path / "from", tmp_path / "to")
        if enough:
            assert conversion.plan(sizes, sizes.keys())
        else:
            with pytest.raises(NotReadyError, match=r"no space to convert to BF16: it needs 3\.8 GB"):
                conversion.plan(sizes, sizes.keys())


@pytest.mark.parametrize(("shape", "scale"), [((1, 200), []), ((128, 128), [1]), ((128, 128), [1, 1])])
def test_a_scale_of_one_value_is_one_scale_a_tensor(shape: tuple[int, int], scale: list[int]) -> None:
    groups = {
        name: {"weights": {"type": "float", "num_bits": 8, "strategy": name, "block_structure": block}}
        for name, block in (("tensor", None), ("channel", None), ("block", [128, 128]))
    }
    form = read_format({**compressed("tensor"), "config_groups": groups})
    assert form.covered(shape, scale) == shape


def test_a_quantization_config_two_configs_deep(tmp_path: Path) -> None:
    tensors = {"a.weight": W, "a.weight_scale_inv": scales(300, 200)}
    config = {"thinker_config": {"text_config": {"quantization_config": BLOCK, "dtype": "bfloat16"}}}
    write_checkpoint(tmp_path / "from", {SINGLE: tensors}, config)
    convert(tmp_path / "from", tmp_path / "to")
    written = json.loads((tmp_path / "to" / "config.json").read_text())
    assert written == {"thinker_config": {"text_config": {"dtype": "bfloat16"}}}


def test_shards_of_mxfp4_that_arrive_one_by_one(tmp_path: Path) -> None:
    blocks, exponents = mxfp4(2, 64, 3)
    names = ("model-1.safetensors", "model-2.safetensors")
    shards = {names[0]: {"e.up_blocks": blocks}, names[1]: {"e.up_scales": exponents}}
    write_checkpoint(tmp_path / "from", shards, {"quantization_config": MXFP4})
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "from").iterdir() if path.is_file()}
    conversion = Conversion(tmp_path / "from", tmp_path / "to")
    assert not conversion.plan(sizes, {names[0]})
    assert conversion.plan(sizes, {"config.json", "model.safetensors.index.json"})
    assert conversion.outputs == {names[0]}
    assert conversion.needs(names[0]) == set(names)
    hashes = dict.fromkeys(names, "a hash")
    assert not conversion.is_done(names[0], hashes)
    conversion.step({names[0]}, hashes)
    assert conversion.bytes_converted(sizes) == 0, "the shard of its scales is not there"
    deadline = time.monotonic() + 30
    while not conversion.done:
        assert time.monotonic() < deadline
        time.sleep(0.01)
        conversion.step(set(names), hashes)
    assert conversion.bytes_converted(sizes) == sizes[names[0]]
    assert conversion.is_done(names[0], hashes)
    conversion.close()
    result = load(tmp_path / "to" / names[0])["e.up"].view(np.uint16)
    assert np.array_equal(result, mxfp4_reference(blocks, exponents))


CHANNEL = compressed("channel")
BY_ROWS: dict[str, Array] = {"a.weight": W, "a.weight_scale": ROWS}
BY_BLOCKS: dict[str, Array] = {"a.weight": W, "a.weight_scale_inv": BLOCKS}
HALF: dict[str, Array] = {"a.weight": W, "a.weight_scale": np.ones((300, 1), np.float16)}
UP: dict[str, Array] = dict(zip(("e.up_blocks", "e.up_scales"), mxfp4(1, 2, 1), strict=True))


@pytest.mark.parametrize(
    ("quantization", "tensors", "message"),
    [
        (BLOCK, BY_BLOCKS | {"a.weight_scale_inv": ROWS}, "its shape is"),
        (compressed("tensor"), BY_ROWS, r"a\.weight_scale: its shape is \[300, 1\]"),
        (CHANNEL, BY_ROWS | {"a.weight_zero_point": ROWS}, r"a\.weight_zero_point: its name contains"),
        (CHANNEL, BY_ROWS | {"b.weight_scale_inv": ONE}, r"b\.weight_scale_inv: its name contains"),
        (CHANNEL, HALF, "a scale of type F16"),
        # Static activations with blocks.
        (BLOCK, BY_BLOCKS | {"a.input_scale": ONE}, r"a\.input_scale: its name contains"),
        (MXFP4, {"e.up_blocks": UP["e.up_blocks"]}, "its scale e.up_scales is in no"),
        (MXFP4, UP | {"e.up_blocks": np.ones((1, 2, 1, 8), np.uint8)}, r"MXFP4 of shape \[1, 2, 1, 8\]"),
        (MXFP4, UP | {"e.up": ONE}, r"e\.up_blocks: e\.up is there too"),
        (MXFP4, {"e.weight": np.ones((2, 2), np.uint8)}, r"e\.weight: type U8"),
    ],
)
def test_what_does_not_fit_its_format_is_refused_with_the_tensor(
    quantization: dict[str, Any], tensors: dict[str, Array], message: str, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path / "from", {SINGLE: tensors}, {"quantization_config": quantization})
    with pytest.raises(InputError, match=message):
        convert(tmp_path / "from", tmp_path / "to")
    assert not (tmp_path / "to").exists()


@together(
    ("quantization", "reason"),
    [
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "modelopt is not understood"),
        ({}, "None is not understood"),
        ({**BLOCK, "fmt": "e5m2"}, "fp8 e5m2"),
        ({**BLOCK, "scale_fmt": "log2"}, "scale_fmt log2"),
        ({**BLOCK, "weight_block_size": [128]}, "weight_block_size"),
        ({**CHANNEL, "format": "pack-quantized"}, "pack-quantized"),
        (compressed("group"), "the strategy group"),
        (compressed("block"), "the strategy block"),
        (compressed("channel", transform_config={"config_groups": {"R4": {}}}), "transform_config"),
        (compressed("channel", sparsity_config={"format": "sparse-24-bitmask"}), "sparsity_config"),
        ({**CHANNEL, "config_groups": {"FP8_DYNAMIC": ["Linear"]}}, "without weights"),
        ({**CHANNEL, "config_groups": {}}, "without config_groups"),
        ({**CHANNEL, "config_groups": {"g": {"weights": {"type": "int", "num_bits": 8}}}}, "int 8"),
    ],
)
def test_a_quantization_config_that_is_not_understood(quantization: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotConvertibleError, match=reason):
        read_format(quantization)
