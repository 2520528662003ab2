#!/usr/bin/env python3
"""Copy published config.json files without what no plan and no engine's memory depends on, for tests.

    python tools/model_configs.py FOLDER SOURCE tests/unit/data/model-configs NAME...

FOLDER holds PUBLISHER--MODEL_config.json and, where a model has one, PUBLISHER--MODEL_hf_quant_config.json.
SOURCE is the origin of FOLDER and is written into each file. Each file has the keys "source", "config" and,
where the model has one, "hf_quant_config"; its name is PUBLISHER--MODEL.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# Code of the model and labels. Not "producer": vLLM knows a ModelOpt checkpoint by it.
LEFT_OUT = {
    "_name_or_path",
    "auto_map",
    "id2label",
    "image_grid_pinpoints",
    "label2id",
    "transformers_version",
}
# One module of each algorithm is enough for a parser; the whole is 3 MB: {module: {"quant_algo": …}}.
SHORTENED = "quantized_layers"


def needed(value: Any) -> Any:
    """`value` without the keys of LEFT_OUT, at any depth."""
    if isinstance(value, list):
        return [needed(item) for item in value]
    if not isinstance(value, dict):
        return value
    needed_keys = {key: needed(item) for key, item in value.items() if key not in LEFT_OUT}
    if SHORTENED in needed_keys:
        by_algorithm = {item["quant_algo"]: {module: item} for module, item in needed_keys[SHORTENED].items()}
        needed_keys[SHORTENED] = {name: item for part in by_algorithm.values() for name, item in part.items()}
    return needed_keys


def lines(value: Any, depth: int) -> str:
    """JSON with a line for each key of the upper levels, and lists on one line."""
    if not isinstance(value, dict) or depth == 0 or not value:
        return json.dumps(value)
    rows = [f'"{key}": {lines(item, depth - 1)}' for key, item in value.items()]
    return "{\n" + ",\n".join(rows) + "\n}"


def main() -> int:
    """Write one file for each NAME."""
    folder, source, target = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    target.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[4:]:
        record = {"source": source}
        for kind in ("config", "hf_quant_config"):
            path = folder / f"{name}_{kind}.json"
            if path.exists():
                record[kind] = needed(json.loads(path.read_text(encoding="utf-8")))
        (target / f"{name}.json").write_text(lines(record, 3) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
