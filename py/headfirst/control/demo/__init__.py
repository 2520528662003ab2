"""Models that need no hub: a chat model that is kept here, a DeepSeek-V3 in FP8; an embedding model, a
Qwen3-Embedding; and the one without weights that rehearsals accept a cluster with. The last two are made
where they are needed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import (
    ACCEPTANCE_MODEL,
    DEMO_MODELS,
)

from headfirst.control.demo import acceptance, embedding

CHAT_MODEL, EMBEDDING_MODEL = MODELS = DEMO_MODELS
_HERE = Path(__file__).parent


def checkpoint_dir() -> Path:
    """Return the folder with config.json, the tokenizer and the shards of the chat model, as on the hub."""
    return _HERE / "checkpoint"


@contextmanager
def checkpoint(model: str) -> Iterator[Path]:
    """The folder of one of MODELS, or of ACCEPTANCE_MODEL; one that is made goes with the context."""
    if model == CHAT_MODEL:
        yield checkpoint_dir()
        return
    with tempfile.TemporaryDirectory(prefix="headfirst-demo-") as folder:
        maker = acceptance if model == ACCEPTANCE_MODEL else embedding
        maker.make(Path(folder), tokenizer=checkpoint_dir())
        yield Path(folder)


def answers() -> dict[str, str]:
    """Return what the chat model answers greedily to each prompt, asked alone and without a system prompt."""
    loaded: dict[str, str] = json.loads((_HERE / "answers.json").read_text(encoding="utf-8"))
    return loaded
