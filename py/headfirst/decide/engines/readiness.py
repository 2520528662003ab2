"""How a replica is asked whether it serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Readiness:
    """When a replica counts as ready; only rank 0 is asked.

    GET `path` answers 200, and POST `probe_path` with `probe_body` answers with something at `answer`: keys
    and indices of the JSON document, as `("usage", "completion_tokens")`. Both carry the API key, and the
    body the served name as `model`. `generates`: 200 at `path` alone proves that the model computes, so that
    a running service need not be probed.
    """

    path: str
    probe_path: str
    probe_body: Mapping[str, Any]
    answer: tuple[str | int, ...]
    generates: bool = False
