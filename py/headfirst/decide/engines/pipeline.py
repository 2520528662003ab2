"""How engines divide layers into pipeline stages, as far as they have it in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headfirst.common.errors import InputError


def given(variable: str, environment: Mapping[str, str], stages: int, layers: int) -> list[int] | None:
    """The layers of each stage where the user has set the engine's variable, as `31,30`; None: not set.

    InputError for what the engine ends with at start.
    """
    text = environment.get(variable)
    if text is None:
        return None
    try:
        counts = [int(count) for count in text.split(",")]
    except ValueError:
        counts = []
    if len(counts) != stages or sum(counts) != layers or min(counts) < 0:
        raise InputError(
            f"{variable}={text} does not divide {layers} layers into {stages} stages",
            hint=f"Write {stages} numbers, with commas, whose sum is {layers}, or leave it out.",
        )
    return counts


def span(counts: Sequence[int], stage: int) -> range:
    """The layers of a stage, given the number of each."""
    first = sum(counts[:stage])
    return range(first, first + counts[stage])
