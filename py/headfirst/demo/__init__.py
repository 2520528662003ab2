"""The demo model: a very small DeepSeek-V3 in FP8, kept here so that the quickstart needs no hub."""

from __future__ import annotations

import json
from pathlib import Path


def checkpoint_dir() -> Path:
    """Return the folder with config.json, the tokenizer and the shards, laid out as on the hub."""
    return Path(__file__).parent / "checkpoint"


def answers() -> dict[str, str]:
    """Return what the model answers greedily to each prompt, asked alone and without a system prompt."""
    text = (Path(__file__).parent / "answers.json").read_text(encoding="utf-8")
    loaded: dict[str, str] = json.loads(text)
    return loaded
