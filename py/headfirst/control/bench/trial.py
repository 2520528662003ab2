"""Whether a change of arguments made a service better: a difference counts when it is beyond the noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from headfirst.control.bench.load import Load
from headfirst.control.bench.result import Percentiles, Point
from headfirst.decide.frozen import Frozen, Tolerant


class Ratios(Tolerant):
    """New ÷ old. Above 1 is better for the rate, worse for times. None: one of them has no such figure."""

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


def _time(old: Percentiles | None, new: Percentiles | None, rank: str) -> float | None:
    return _ratio(getattr(old, rank), getattr(new, rank)) if old and new else None


def _ratio(old: float, new: float) -> float | None:
    return new / old if old else None


Goal = Literal["throughput", "ttft", "tpot"]
Verdict = Literal["better", "worse", "no difference", "failed"]


class Judged(Frozen):
    """`ratio`: mean of the trial ÷ mean of the baseline. `noise`: the spreads of both over their repeats, as
    a share of the baseline's mean; a smaller difference is none. None: nothing was measured."""

    verdict: Verdict
    ratio: float | None = None
    noise: float | None = None
    why: str = ""


def score(points: Sequence[Point], goal: Goal) -> list[float] | None:
    """The figure of each repeat: output tokens a second, or p95 seconds. None where a request failed."""
    figures = []
    for point in points:
        spread = point.ttft if goal == "ttft" else point.tpot
        if point.failed or spread is None:
            return None
        figures.append(point.output_rate if goal == "throughput" else spread.p95)
    return figures or None


def judge(base: Sequence[float], trial: Sequence[float] | None, goal: Goal) -> Judged:
    """The means differ by more than both spreads together, or there is no difference."""
    if not trial:
        return Judged(verdict="failed", why="requests failed")
    base_mean, trial_mean = sum(base) / len(base), sum(trial) / len(trial)
    noise = (max(base) - min(base) + max(trial) - min(trial)) / base_mean
    ratio = trial_mean / base_mean
    if abs(ratio - 1) <= noise:
        return Judged(verdict="no difference", ratio=ratio, noise=noise)
    is_better = ratio > 1 if goal == "throughput" else ratio < 1
    return Judged(verdict="better" if is_better else "worse", ratio=ratio, noise=noise)


def best(judged: Sequence[Judged], goal: Goal) -> int | None:
    """The number of the best trial; None where none is better than the baseline."""
    better = [
        (trial.ratio, number)
        for number, trial in enumerate(judged)
        if trial.verdict == "better" and trial.ratio
    ]
    if not better:
        return None
    return (max(better) if goal == "throughput" else min(better))[1]
