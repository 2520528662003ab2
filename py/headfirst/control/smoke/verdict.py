"""A case and its result: passed, failed, or not supported, each with one line why.

Rules for "not supported", which is a decision and never a failure that is passed over:
1. the engine has no such request, or ignores the parameter (`RequestDialect`);
2. the service was started without what the request needs: a parser, an adapter;
3. the service has another task than the case is for, and the server refuses the request (a status of
   `REFUSALS`);
4. what a case names itself: a refusal (`REFUSALS`) whose message has the words of `Case.refusal`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

from pydantic import BaseModel, ConfigDict

from headfirst.common.errors import HeadfirstError
from headfirst.decide.engines.base import Task

if TYPE_CHECKING:
    from headfirst.control.smoke.api import Api

Verdict = Literal["passed", "failed", "not supported"]
REFUSALS = frozenset({400, 404, 405, 422, 501})
GENERATES: frozenset[Task] = frozenset({"chat", "vision"})
ANY_TASK: frozenset[Task] = frozenset(get_args(Task))


class FailedCase(HeadfirstError):
    """The service does not do what the case is for."""


class NotSupportedCase(HeadfirstError):
    """The engine or the model lacks what the case is for."""


class RefusedRequest(FailedCase):
    """An answer with an error's status; `message` is the server's own text."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the service answers {status}: {message}")
        self.status = status
        self.message = message


class Result(BaseModel):
    """What became of one case."""

    model_config = ConfigDict(frozen=True)

    case: str
    verdict: Verdict
    why: str
    seconds: float


class Case:
    """One property of a service. `check` returns one line on what was seen, or raises.

    `tasks` are those of the services that must have it. `refusal`: words in a refusal that make it "not
    supported" on these services too.
    """

    def __init__(
        self, name: str, tasks: frozenset[Task], check: Callable[[Api], str], refusal: str | None = None
    ) -> None:
        self.name = name
        self.tasks = tasks
        self.check = check
        self.refusal = re.compile(refusal, re.IGNORECASE) if refusal else None

    @property
    def title(self) -> str:
        """What the case is for, in one line."""
        return (self.check.__doc__ or "").strip().splitlines()[0].removesuffix(".")

    def judge(self, api: Api) -> tuple[Verdict, str]:
        """Run the case."""
        try:
            return "passed", self.check(api)
        except NotSupportedCase as error:
            return "not supported", error.what
        except RefusedRequest as error:
            if error.status not in REFUSALS:
                return "failed", error.what
            if api.target.task not in self.tasks:
                return "not supported", f"a {api.target.task} service; {error.what}"
            if self.refusal and self.refusal.search(error.message):
                return "not supported", error.what
            return "failed", error.what
        except FailedCase as error:
            return "failed", error.what


def case(
    name: str, tasks: frozenset[Task] = GENERATES, *, refusal: str | None = None
) -> Callable[[Callable[[Api], str]], Callable[[Api], str]]:
    """Register a function as a case for services of these tasks."""

    def register(check: Callable[[Api], str]) -> Callable[[Api], str]:
        CASES[name] = Case(name, tasks, check, refusal)
        return check

    return register


CASES: dict[str, Case] = {}  # by name, in the order in which they run
