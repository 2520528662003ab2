"""The supervisor against random histories; tests/long/test_supervisor_histories.py runs many more."""

from __future__ import annotations

from hypothesis.stateful import run_state_machine_as_test
from supervisor_model import HISTORIES, SupervisorModel


def test_no_history_does_harm() -> None:
    """About 3,000 steps, the same ones each time."""
    before = SupervisorModel.steps_run
    run_state_machine_as_test(SupervisorModel, settings=HISTORIES)
    assert SupervisorModel.steps_run - before >= 2000
