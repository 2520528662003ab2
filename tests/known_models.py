"""Models that the catalogue has."""

from __future__ import annotations

from typing import Any

from headfirst.decide.model import catalogue
from headfirst.decide.model.checkpoint import Checkpoint


def model(id: str = "deepseek-ai/DeepSeek-R1", **changes: Any) -> Checkpoint:
    """The catalogue's description, with other values of these fields."""
    found = catalogue.lookup(id)
    assert found is not None, id
    return found.model_copy(update=changes)
