"""The engines by name. One more engine is one more entry."""

from __future__ import annotations

import difflib

from headfirst.engines.base import Engine
from headfirst.engines.sglang.engine import Sglang
from headfirst.errors import InputError

ENGINES: dict[str, Engine] = {"sglang": Sglang()}


def get(name: str, *, where: str | None = None) -> Engine:
    """The engine called `name`; InputError with the known names otherwise."""
    try:
        return ENGINES[name]
    except KeyError:
        near = difflib.get_close_matches(name, ENGINES, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Known engines: {', '.join(ENGINES)}."
        raise InputError(f"Unknown engine {name!r}.", where=where, hint=hint) from None
