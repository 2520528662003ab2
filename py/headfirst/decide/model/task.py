"""What a model is served for: decides the API that must answer, and which presets apply."""

from __future__ import annotations

from typing import Literal

Task = Literal["chat", "embedding", "rerank", "reward", "vision"]
