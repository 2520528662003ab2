"""Runs the random histories of a model: a RuleBasedStateMachine."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def run(model: type[RuleBasedStateMachine], count: int, numbers: Iterable[int], *, steps: int) -> None:
    """Run `count` histories of at most `steps` steps for each number, which determines them.

    Histories of one number resemble each other: several numbers find more than many histories. The first one
    that breaks an invariant is printed as a short program.
    """
    options = settings(
        max_examples=count,
        stateful_step_count=steps,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    for number in numbers:
        run_state_machine_as_test(seed(number)(model), settings=options)
