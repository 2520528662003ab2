"""Checkpoints of published models by their own config.json (data/model-configs), without their weights."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.config import WeightFiles, from_config

FOLDER = Path(__file__).parent / "data" / "model-configs"


def entry(name: str) -> dict[str, Any]:
    """The file of the model `publisher--model`."""
    read: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return read


def config(name: str) -> dict[str, Any]:
    """The config.json of the model."""
    published: dict[str, Any] = entry(name)["config"]
    return published


@cache
def checkpoint(name: str, weights: int = 10**9) -> Checkpoint:
    """The model `publisher--model`, with so many bytes of weights."""
    described = entry(name)
    return from_config(
        described["config"],
        id=name.replace("--", "/", 1),
        revision=None,
        weights=WeightFiles(weights, ()),
        source="folder",
        where=name,
        quantization_config=described.get("hf_quant_config"),
    )
