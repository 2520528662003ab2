"""Cases, their results (passed, failed, not called or not supported, each with one line why), and the report.

Rules for "not supported", which is a decision and never a failure that is passed over:
1. the engine has no such request, or ignores the parameter (`RequestDialect`);
2. the service was started without what the request needs: a parser, an adapter, images (`RequestDialect`,
   `Target.parsers`);
3. the service has another task than the case is for, and the server refuses the request (a status of
   `REFUSALS`);
4. what a case names itself: a refusal (`REFUSALS`) whose message has the words of `Case.refusal`.

"Not called" is the model's own decision where a request leaves the tool to it: neither passed nor failed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args
from xml.etree import ElementTree

from pydantic import computed_field

from headfirst.control.smoke.answers import (
    REFUSALS,
    FailedCase,
    NotCalledCase,
    NotSupportedCase,
    RefusedRequest,
)
from headfirst.control.smoke.api import Api
from headfirst.decide.engines.base import Task
from headfirst.decide.frozen import Tolerant
from headfirst.decide.plan.types import Capabilities

Verdict = Literal["passed", "failed", "not called", "not supported"]
SKIPPED: tuple[Verdict, ...] = ("not called", "not supported")
GENERATES: frozenset[Task] = frozenset({"chat", "vision"})
ANY_TASK: frozenset[Task] = frozenset(get_args(Task))


class CaseResult(Tolerant):
    """What became of one case. `hint`: what to write into the inventory, where that changes it."""

    case: str
    verdict: Verdict
    why: str
    hint: str = ""
    seconds: float


class SmokeReport(Tolerant):
    """One run on one service; it has passed when no case failed."""

    service: str
    engine: str
    task: str
    seconds: float
    results: list[CaseResult]
    capabilities: Capabilities | None = None  # of the plan

    @computed_field  # type: ignore[prop-decorator]
    @property
    def passed(self) -> bool:
        """Whether no case failed."""
        return not self.counts["failed"]

    @property
    def counts(self) -> Counter[str]:
        """Cases by verdict."""
        return Counter(result.verdict for result in self.results)


def write_junit(report: SmokeReport, path: Path) -> None:
    """Write the XML that CI systems read; what is neither passed nor failed is skipped."""
    counts = report.counts
    suite = ElementTree.Element(
        "testsuite",
        name=f"deploy test {report.service}",
        tests=str(len(report.results)),
        failures=str(counts["failed"]),
        errors="0",
        skipped=str(sum(counts[verdict] for verdict in SKIPPED)),
        time=f"{report.seconds:.3f}",
    )
    for result in report.results:
        group, _, name = result.case.partition(".")
        entry = ElementTree.SubElement(
            suite, "testcase", classname=group, name=name, time=f"{result.seconds:.3f}"
        )
        if result.verdict == "failed":
            ElementTree.SubElement(entry, "failure", message=result.why).text = result.hint or None
        elif result.verdict in SKIPPED:
            ElementTree.SubElement(entry, "skipped", message=f"{result.verdict}: {result.why}")
        else:
            ElementTree.SubElement(entry, "system-out").text = result.why
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


@dataclass(frozen=True)
class Case:
    """One property of a service. `check` returns one line on what was seen, or raises.

    `tasks` are those of the services that must have it. `refusal`: a pattern of words in a refusal that make
    it "not supported" on these services too.
    """

    name: str
    tasks: frozenset[Task]
    check: Callable[[Api], str]
    refusal: str | None = None

    @property
    def title(self) -> str:
        """What the case is for, in one line."""
        return (self.check.__doc__ or "").strip().splitlines()[0].removesuffix(".")

    def judge(self, api: Api) -> tuple[Verdict, str, str]:
        """Run the case: the verdict, why, and what to write into the inventory, or ""."""
        if reason := api.target.dialect.left_out.get(self.name):
            return "not supported", reason, ""
        try:
            return "passed", self.check(api), ""
        except NotSupportedCase as error:
            return "not supported", error.what, error.hint or ""
        except NotCalledCase as error:
            return "not called", error.what, ""
        except FailedCase as error:
            if isinstance(error, RefusedRequest) and error.status in REFUSALS:
                if api.target.task not in self.tasks:
                    return "not supported", f"a {api.target.task} service; {error.what}", ""
                if self.refusal and re.search(self.refusal, error.message, re.IGNORECASE):
                    return "not supported", error.what, ""
            return "failed", error.what, error.hint or ""


def case(
    name: str, tasks: frozenset[Task] = GENERATES, *, refusal: str | None = None
) -> Callable[[Callable[[Api], str]], Callable[[Api], str]]:
    """Register a function as a case for services of these tasks."""

    def register(check: Callable[[Api], str]) -> Callable[[Api], str]:
        CASES[name] = Case(name, tasks, check, refusal)
        return check

    return register


CASES: dict[str, Case] = {}  # by name, in the order in which they run
