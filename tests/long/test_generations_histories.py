"""Generations under many random histories, other ones each time."""

from __future__ import annotations

import random

import pytest
from generations_model import happened, run_histories

pytestmark = pytest.mark.slow
STEPS = 100_000


def test_no_history_mixes_versions() -> None:
    happened.clear()
    while happened["steps"] < STEPS:
        run_histories(100, [random.getrandbits(32)])
    print(dict(happened))
