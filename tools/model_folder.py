"""A model's folder with its configs alone, for tools that run the engines' own code without weights."""

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
