"""Records of generations on a node: /etc/headfirst/NAME/GENERATION.json, which container_generations writes.

Python 3.8 or newer, standard library only.
"""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

FOLDER = "/etc/headfirst"


def path(name: str, generation: str, folder: t.Union[str, Path] = FOLDER) -> Path:
    """Where the record of a generation is."""
    return Path(folder) / name / (generation + ".json")


def read(record: Path) -> t.Dict[str, t.Any]:
    """A record; {} where there is none."""
    try:
        document: t.Dict[str, t.Any] = json.loads(record.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # ValueError: the node lost power while it was written
        return {}
    return document
