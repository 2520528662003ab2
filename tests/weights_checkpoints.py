"""Small checkpoints for the tests of node/weights, and an independent dequantisation (ml_dtypes)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

SHARD_1, SHARD_2 = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
Array = npt.NDArray[np.generic]
FP8 = np.dtype(ml_dtypes.float8_e4m3fn)
BF16 = np.dtype(ml_dtypes.bfloat16)
BLOCK = (128, 128)


def fp8_weight(rows: int, columns: int, seed: int = 0) -> Array:
    """Every one of the 256 codes occurs (NaN, subnormals, both zeros), the rest is random."""
    codes = np.random.default_rng(seed).integers(0, 256, (rows, columns), dtype=np.uint8)
    codes.reshape(-1)[:256] = np.arange(min(256, codes.size))
    return codes.view(FP8)


def scales(rows: int, columns: int, seed: int = 0, block: tuple[int, int] = BLOCK) -> npt.NDArray[np.float32]:
    """Scales over the whole range that fp32 has, so that results overflow and underflow too."""
    shape = (-(-rows // block[0]), -(-columns // block[1]))
    exponents = np.random.default_rng(seed).integers(-133, 125, shape)
    return np.ldexp(np.random.default_rng(seed + 1).uniform(1, 2, shape), exponents).astype(np.float32)


def reference(weight: Array, scale: Array, block: tuple[int, int] = BLOCK) -> npt.NDArray[np.uint16]:
    """BF16 bits by ml_dtypes: expand the scales, multiply in fp32, cast."""
    rows, columns = weight.shape
    expanded = np.repeat(np.repeat(scale.astype(np.float32), block[0], 0), block[1], 1)[:rows, :columns]
    with np.errstate(all="ignore"):
        return (weight.astype(np.float32) * expanded).astype(BF16).view(np.uint16)


def write_checkpoint(
    folder: Path, shards: Mapping[str, Mapping[str, Array]], config: Mapping[str, object] | None = None
) -> None:
    """A checkpoint as a hub has it: shards, index, config, tokenizer, code in a subfolder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, tensors in shards.items():
        save_file(dict(tensors), folder / name, metadata={"format": "pt"})
    weight_map = {tensor: shard for shard, tensors in shards.items() for tensor in tensors}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map})
    )
    quantization = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": list(BLOCK)}
    default = {"architectures": ["DeepseekV3ForCausalLM"], "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(default if config is None else config))
    (folder / "tokenizer.json").write_text('{"unicode": "头"}')
    (folder / "inference").mkdir(exist_ok=True)
    (folder / "inference" / "model.py").write_text("print('kept')\n")
    (folder / ".cache").mkdir(exist_ok=True)
    (folder / ".cache" / "junk").write_text("a client's own file")


def load(path: Path) -> dict[str, Array]:
    """Tensors of a shard, by the safetensors library."""
    return dict(load_file(path))


def bits_equal(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Equal bit for bit; NaNs are equal to each other whatever their payload."""
    nan = np.isnan(theirs.view(BF16).astype(np.float32))
    return bool((np.isnan(ours.view(BF16).astype(np.float32)) == nan).all() and (ours == theirs)[~nan].all())


def two_shards() -> dict[str, dict[str, Array]]:
    rng = np.random.default_rng(7)
    return {
        SHARD_1: {
            "model.layers.0.mlp.gate_proj.weight": fp8_weight(576, 300, 1),
            "model.layers.0.mlp.gate.e_score_correction_bias": rng.normal(size=9).astype(np.float32),
            "model.norm.weight": rng.normal(size=33).astype(np.float32).astype(BF16),
            "model.layers.61.eh_proj.weight": fp8_weight(128, 256, 2),
            "model.layers.61.eh_proj.weight_scale_inv": scales(128, 256, 2),
        },
        SHARD_2: {
            # The scale of a weight in the other shard.
            "model.layers.0.mlp.gate_proj.weight_scale_inv": scales(576, 300, 1),
            "lm_head.weight": rng.normal(size=(4, 8)).astype(np.float16),
        },
    }
