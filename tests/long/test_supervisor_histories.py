"""The supervisor against 100,000 random steps, other ones each time; a few minutes, and no nodes."""

from __future__ import annotations

import random

import pytest
from supervisor_model import SupervisorModel, run_histories

STEPS = 100_000


def test_no_history_does_harm(capsys: pytest.CaptureFixture[str]) -> None:
    steps = 0
    while steps < STEPS:
        steps += run_histories(100, [random.getrandbits(32)])
    with capsys.disabled():
        print(f"\n{steps} steps; the supervisor took {SupervisorModel.seconds_run} of its own")
