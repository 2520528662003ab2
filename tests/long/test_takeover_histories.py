"""Spares against 20,000 random steps, other ones each time; a few minutes, and no nodes."""

from __future__ import annotations

import random

import pytest
from takeover_model import TakeoverModel, run_histories

STEPS = 20_000


def test_no_takeover_does_harm(capsys: pytest.CaptureFixture[str]) -> None:
    steps = 0
    while steps < STEPS:
        steps += run_histories(20, [random.getrandbits(32)])
    with capsys.disabled():
        print(f"\n{steps} steps; the replica came to serve {TakeoverModel.takeovers} times")
