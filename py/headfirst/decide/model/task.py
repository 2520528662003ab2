"""What a model is served for: decides the API that must answer, and which presets apply.

A file of its own: the command line reads it at each start, and checkpoint.py takes long to import.
"""

from __future__ import annotations

from typing import Literal

Task = Literal["chat", "embedding", "rerank", "reward", "vision", "completion"]
GENERATING: frozenset[Task] = frozenset({"chat", "vision", "completion"})
"""Tasks whose answers are generated, token by token."""
