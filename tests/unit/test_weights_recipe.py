"""What the converter understands and what it refuses, from names, headers and the config alone."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from headfirst.common.convertible import read_format
from headfirst.common.errors import InputError
from headfirst.common.safetensors_file import read_shard
from headfirst.node.weights.convert.convert_folder import convert
from headfirst.node.weights.convert.recipe import make_recipe, scale_homes
from together import together
from weights_checkpoints import SHARD_1, SHARD_2, Array, fp8_weight, scales, two_shards, write_checkpoint

BLOCKS = read_format({"quant_method": "fp8", "weight_block_size": [128, 128]})
W, S = fp8_weight(128, 128), scales(128, 128)
REFUSED: dict[str, tuple[dict[str, Array], str]] = {
    "missing scale": ({"a.weight": W}, "a.weight: its scale a.weight_scale_inv is in no shard"),
    "orphan scale": ({"a.weight_scale_inv": S}, "a.weight_scale_inv: it is a scale without a weight"),
    "unknown suffix": ({"a.weight": W, "a.weight_scale": S}, "a.weight_scale: its name contains"),
    "packed FP4": ({"a.weight_packed": W.view(np.uint8)}, "a.weight_packed: its name contains"),
    "wrong scale shape": (
        {"a.weight": W, "a.weight_scale_inv": scales(256, 128)},
        r"its shape is \[2, 1\], which \[128, 128\] with a scale for each \(128, 128\)",
    ),
    "e5m2": ({"a.weight": W.view(np.uint8).view(ml_dtypes.float8_e5m2)}, "F8_E5M2"),
    "fp16 scale": ({"a.weight": W, "a.weight_scale_inv": np.ones((1, 1), np.float16)}, "a scale of type F16"),
    "one scale for two matrices": (
        {"a.weight": W.reshape(2, 64, 128), "a.weight_scale_inv": S.reshape(1, 1, 1)},
        r"its shape is \[1, 1, 1\], which \[2, 64, 128\]",
    ),
    "scale of a weight that is not FP8": (
        {"a.weight": np.ones((128, 128), np.float32), "a.weight_scale_inv": S},
        "a.weight_scale_inv: it is a scale, but its weight is F32",
    ),
    "one dimension": ({"a.weight": W[0], "a.weight_scale_inv": S[0]}, r"shape \[128\] is not"),
    "nothing to do": ({"a.weight": S}, "no quantised tensor"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_understood_is_refused_with_the_tensor(case: str, tmp_path: Path) -> None:
    tensors, message = REFUSED[case]
    write_checkpoint(tmp_path / "fp8", {"model.safetensors": tensors})
    with pytest.raises(InputError, match=message):
        convert(tmp_path / "fp8", tmp_path / "bf16")
    assert not (tmp_path / "bf16").exists()


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        (None, "not quantised"),
        ({"quant_method": "awq"}, "awq"),
        ({"quant_method": "fp8", "fmt": "e5m2", "weight_block_size": [128, 128]}, "e5m2"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size"),
    ],
)
def test_a_quantization_config_that_is_not_understood(
    quantization: object, message: str, tmp_path: Path
) -> None:
    config = {} if quantization is None else {"quantization_config": quantization}
    write_checkpoint(
        tmp_path / "fp8", {"model.safetensors": {"a.weight": W, "a.weight_scale_inv": S}}, config
    )
    with pytest.raises(InputError, match=message):
        convert(tmp_path / "fp8", tmp_path / "bf16")


@together(
    "name",
    [
        *("a.weight_scale", "a.weight_scale_2", "a.weight_packed", "a.weight_zero_point", "a.weight_shape"),
        *("a.input_scale", "a.activation_scale", "a.qweight", "a.qzeros", "a.g_idx", "a.experts_blocks"),
        *("a.scale", "a.scales", "lonely.weight_scale_inv"),
    ],
)
def test_the_index_alone_is_enough_to_refuse_a_tensor_by_name(name: str) -> None:
    with pytest.raises(InputError, match=f"tensor {name}: "):
        scale_homes({"a.weight": SHARD_1, "a.weight_scale_inv": SHARD_2, name: SHARD_2}, BLOCKS)


@pytest.mark.parametrize("name", ["a.e_score_correction_bias", "model.norm.weight", "a.scale_head.weight"])
def test_names_that_only_look_like_scales_pass(name: str) -> None:
    assert scale_homes({name: SHARD_1}, BLOCKS) == {SHARD_1: frozenset()}


def test_a_recipe_needs_only_the_shard_and_those_of_its_scales(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, two_shards())
    first, second = read_shard(tmp_path / SHARD_1), read_shard(tmp_path / SHARD_2)
    recipe = make_recipe(first, [second], BLOCKS)
    assert recipe is not None
    assert recipe.inputs == [tmp_path / SHARD_1, tmp_path / SHARD_2]
    assert len(recipe.scaled) == 2
    alone = make_recipe(second, [], BLOCKS)
    assert alone is not None
    assert [tensor.name for tensor in alone.copied] == ["lm_head.weight"]
    with pytest.raises(InputError, match=r"gate_proj\.weight: its scale .* is in no shard"):
        make_recipe(first, [], BLOCKS)


def test_a_shard_of_scales_alone_has_no_recipe(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {SHARD_1: {"a.weight_scale_inv": S}})
    assert make_recipe(read_shard(tmp_path / SHARD_1), [], BLOCKS) is None
