"""A replica's load as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headfirst.control.live.load import Load


def load(found: Load | None) -> str:
    """One line for `deploy status`."""
    if found is None:
        return "unknown: the engine publishes no metrics"
    return (
        f"{found.generated_tokens_per_s:.1f} tokens/s generated, "
        f"{found.prompt_tokens_per_s:.1f} tokens/s read, "
        f"{found.running} running, {found.queued} queued, KV cache {percent(found.cache_usage)}"
    )


def percent(part: float) -> str:
    """0..1 as a percentage."""
    return f"{part:.0%}"
