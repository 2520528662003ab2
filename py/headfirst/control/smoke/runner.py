"""Runs cases one after the other and times them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

from headfirst.common.errors import InputError
from headfirst.common.untrusted import shown
from headfirst.control.smoke import cases as _cases  # noqa: F401 - registers them
from headfirst.control.smoke.api import Api
from headfirst.control.smoke.verdict import CASES, Case, CaseResult, SmokeReport

_LONGEST_LINE = 240


class CaseWatcher(Protocol):
    """Follows a run."""

    def started(self, case: Case) -> None:
        """A case begins."""

    def ended(self, result: CaseResult) -> None:
        """It has a verdict."""


def chosen(patterns: Sequence[str]) -> list[Case]:
    """The cases that match one of the patterns, as `chat.*`; without patterns all. InputError: none."""
    cases = [
        case
        for name, case in CASES.items()
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    ]
    if not cases:
        raise InputError(
            f"no case matches {', '.join(patterns)}",
            where="--only",
            hint=f"Cases: {', '.join(CASES)}.",
        )
    return cases


def run(api: Api, cases: Sequence[Case], watcher: CaseWatcher, scrub: Callable[[str], str]) -> SmokeReport:
    """The verdicts; `scrub` takes secrets out of what the server has sent."""
    begin = time.monotonic()
    results = []
    for case in cases:
        watcher.started(case)
        since = time.monotonic()
        verdict, why, hint = case.judge(api)
        seconds = round(time.monotonic() - since, 3)
        # Secrets go first: a cut could leave a part of one.
        line = shown(" ".join(scrub(why).split()), _LONGEST_LINE)
        result = CaseResult(case=case.name, verdict=verdict, why=line, hint=hint, seconds=seconds)
        results.append(result)
        watcher.ended(result)
    return SmokeReport(
        service=api.target.model,
        engine=api.target.engine,
        task=api.target.task,
        seconds=round(time.monotonic() - begin, 3),
        results=results,
    )
