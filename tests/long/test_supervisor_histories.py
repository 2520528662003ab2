"""The supervisor against 100,000 random steps, other ones each time; a few minutes, and no nodes."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from supervisor_model import HISTORIES, SupervisorModel

STEPS = 100_000


def test_no_history_does_harm(capsys: pytest.CaptureFixture[str]) -> None:
    before = SupervisorModel.steps_run
    while SupervisorModel.steps_run - before < STEPS:
        many = settings(HISTORIES, derandomize=False, max_examples=500)
        run_state_machine_as_test(SupervisorModel, settings=many)
    steps, seconds = SupervisorModel.steps_run - before, SupervisorModel.seconds_run
    with capsys.disabled():
        print(f"\n{steps} steps; the supervisor took {seconds} of its own")
