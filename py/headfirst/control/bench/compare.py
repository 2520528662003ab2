"""Two runs, load by load: figures of the second as ratios of the first."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from headfirst.control.bench.load import Load
from headfirst.control.bench.result import Point, Spread


class Ratios(BaseModel):
    """New ÷ old. Above 1 is better for the rate, worse for times. None: one of them has no such figure."""

    model_config = ConfigDict(frozen=True)

    load: Load
    output_rate: float | None
    ttft_p50: float | None
    ttft_p95: float | None
    tpot_p50: float | None
    tpot_p95: float | None
    e2e_p50: float | None
    e2e_p95: float | None
    failed: tuple[int, int]  # old, new


def compare(old: Sequence[Point], new: Sequence[Point]) -> list[Ratios]:
    """The loads that both have, in the order of `new`."""
    before = {point.load: point for point in old}
    return [_ratios(before[point.load], point) for point in new if point.load in before]


def _ratios(old: Point, new: Point) -> Ratios:
    times = {
        f"{name}_{rank}": _time(getattr(old, name), getattr(new, name), rank)
        for name in ("ttft", "tpot", "e2e")
        for rank in ("p50", "p95")
    }
    return Ratios(
        load=new.load,
        output_rate=_ratio(old.output_rate, new.output_rate),
        failed=(old.failed, new.failed),
        **times,
    )


def _time(old: Spread | None, new: Spread | None, rank: str) -> float | None:
    return _ratio(getattr(old, rank), getattr(new, rank)) if old and new else None


def _ratio(old: float, new: float) -> float | None:
    return new / old if old else None
