"""How many requests run at a time, where the engine ends at start if the KV cache has room for fewer."""

from __future__ import annotations

from headfirst.decide.engines.base import Engine
from headfirst.decide.plan.sizing.fit import Memory
from headfirst.decide.plan.types import ChosenArgument

# The engine measures part of the memory at its start and may have a tenth less.
_SURE = 0.9


def choose(engine: Engine, memory: Memory) -> ChosenArgument | None:
    """The argument that lowers the number of requests; None where none is needed, or a person sets it."""
    use, requests = memory.use, memory.room.requests
    sure = int((requests or 0) * _SURE)
    if use.requests_flag is None or use.requests_given or not sure or sure >= use.requests:
        return None
    return ChosenArgument(
        flag=use.requests_flag,
        value=str(sure),
        reason=f"Each request keeps a state of constant size, and the KV cache has room for {requests}; with "
        f"{use.requests}, the default, {engine.title} ends at start.",
        source=f"{engine.title} {engine.version}, config/compilation.py",
    )
