"""The highest load that keeps promised times: measured at the loads that were asked for, then between them.

It takes for granted that a service which breaks a promise at some load breaks it at every higher one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

from headfirst.common.errors import InputError
from headfirst.control.bench.load import MAX_CONCURRENCY, MAX_RATE, Load
from headfirst.control.bench.result import Point

Name = Literal["ttft", "tpot", "e2e"]
# Points beside those that were asked for, and how near the two last loads come to each other.
MORE_POINTS = 8
NEAR = 0.05

_TERM = re.compile(r"(ttft|tpot|e2e)=(\d+(?:\.\d+)?)(ms|s)")


class Promise(NamedTuple):
    """95 of 100 requests are not slower."""

    name: Name
    seconds: float

    def __str__(self) -> str:
        return f"{self.name} p95 ≤ {self.seconds:g} s"


def promises(text: str) -> list[Promise]:
    """`ttft=2s,tpot=50ms`; "" is none. InputError for what is no such list."""
    promised = []
    for part in text.split(",") if text else ():
        match = _TERM.fullmatch(part.strip())
        if match is None or not float(match[2]):
            names = ", ".join(get_args(Name))
            raise InputError(
                f"{part!r} is not an objective",
                where="--slo",
                hint=f"Write ttft=2s,tpot=50ms; names: {names}; units: s, ms.",
            )
        name: Name = match[1]  # type: ignore[assignment]  # the pattern has the same names
        promised.append(Promise(name, float(match[2]) / (1000 if match[3] == "ms" else 1)))
    if len({promise.name for promise in promised}) < len(promised):
        raise InputError("a time is promised twice", where="--slo")
    return promised


def broken(point: Point, promised: Sequence[Promise]) -> list[str]:
    """What the point does not keep, a clause each. A failed request keeps nothing."""
    clauses = [f"{point.failed} requests failed"] if point.failed else []
    for promise in promised:
        spread = getattr(point, promise.name)
        if spread is None:
            clauses.append(f"{promise.name} was not measured")
        elif spread.p95 > promise.seconds:
            clauses.append(f"{promise.name} p95 is {spread.p95:.3g} s")
    return clauses


class Capacity(NamedTuple):
    """`highest`: None where even the lowest load breaks a promise. `limit`: the lowest load that breaks one;
    None: no measured load did, so the service may carry more."""

    highest: Load | None
    limit: Load | None


def search(loads: Sequence[Load], keeps: Callable[[Load], bool]) -> Capacity:
    """Measure with `keeps`: the loads that were asked for, rising, until one breaks a promise. Then at most
    MORE_POINTS others: doubled loads where none did, else between the last good one and the first bad one."""
    kind = loads[0].kind
    most = MAX_RATE if kind == "rate" else float(MAX_CONCURRENCY)
    good, bad = 0.0, None
    for load in sorted(loads, key=lambda load: load.value):
        if not keeps(load):
            bad = load.value
            break
        good = load.value
    for _ in range(MORE_POINTS):
        value = _next(good, bad, most, whole=kind == "concurrency")
        if value is None:
            break
        if keeps(Load(kind=kind, value=value)):
            good = value
        else:
            bad = value
    return Capacity(
        Load(kind=kind, value=good) if good else None, Load(kind=kind, value=bad) if bad is not None else None
    )


def _next(good: float, bad: float | None, most: float, *, whole: bool) -> float | None:
    """The next load to measure; None: near enough, or there is none."""
    if bad is None:
        return min(good * 2, most) if good < most else None
    if bad - good <= (max(1.0, bad * NEAR) if whole else bad * NEAR):
        return None
    middle = (good + bad) / 2
    return float(int(middle)) if whole else float(f"{middle:.3g}")
