"""A model's folder with its configs alone, and the records of tools that run the engines' own code on it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def model_folder(record: dict[str, Any]) -> Iterator[str]:
    """The folder of `config` and, where the record has it, `hf_quant_config`."""
    with tempfile.TemporaryDirectory() as path:
        for kind in ("config", "hf_quant_config"):
            if kind in record:
                (Path(path) / f"{kind}.json").write_text(json.dumps(record[kind]), encoding="utf-8")
        yield path


def write_record(path: Path, head: dict[str, Any], models: dict[str, list[Any]]) -> None:
    """Writes JSON: a line for each key of `head`, and under "models" one for each row."""
    rows = {name: ",\n".join(map(json.dumps, lines)) for name, lines in models.items()}
    listed = ",\n".join(f"{json.dumps(name)}: [\n{lines}\n]" for name, lines in rows.items())
    keys = "".join(f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
    path.write_text(f'{{\n{keys}"models": {{\n{listed}\n}}\n}}\n', encoding="utf-8")
