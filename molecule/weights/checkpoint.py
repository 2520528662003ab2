"""Write a tiny FP8 checkpoint of two shards; a weight's scale lies in the other shard.

Usage: checkpoint.py FOLDER
"""

from __future__ import annotations

import json
import random
import struct
import sys
from pathlib import Path

from headfirst.common.safetensors_file import layout

ROWS, COLUMNS = 1024, 2048
BLOCK = 128
WEIGHT = "model.layers.0.mlp.up_proj.weight"
SHARDS = {
    "model-00001-of-00002.safetensors": [(WEIGHT, "F8_E4M3", (ROWS, COLUMNS))],
    "model-00002-of-00002.safetensors": [
        (f"{WEIGHT}_scale_inv", "F32", (ROWS // BLOCK, COLUMNS // BLOCK)),
        ("model.layers.0.mlp.gate.e_score_correction_bias", "F32", (8,)),
    ],
}


def main() -> None:
    """Carry out the command; the same bytes on every run."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    numbers = random.Random(1)  # noqa: S311 - test data
    for shard, tensors in SHARDS.items():
        header, placed, _ = layout(tensors)
        with (folder / shard).open("wb") as file:
            file.write(header)
            for tensor in placed:
                size = tensor.end - tensor.start
                floats = (struct.pack("<f", numbers.uniform(0.01, 2)) for _ in range(size // 4))
                file.write(numbers.randbytes(size) if tensor.dtype == "F8_E4M3" else b"".join(floats))
    weight_map = {name: shard for shard, tensors in SHARDS.items() for name, _, _ in tensors}
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    quantization = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [BLOCK, BLOCK]}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps({"quantization_config": quantization}))
    (folder / "tokenizer.json").write_text("{}")


if __name__ == "__main__":
    main()
