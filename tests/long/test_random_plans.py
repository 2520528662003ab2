"""20,000 random inventories, engine arguments and models; see tests/random_plans.py."""

from __future__ import annotations

import random
from pathlib import Path

import random_plans
from hypothesis import HealthCheck, given, seed, settings


def test_plans_hold_what_they_state(tmp_path: Path) -> None:
    """The number of the run is printed, and repeats it."""
    number = random.SystemRandom().randrange(10**6)
    print(f"seed {number}")
    path = tmp_path / "cluster.ini"
    path.touch()
    counts = {True: 0, False: 0}

    @seed(number)
    @settings(max_examples=20_000, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(random_plans.examples())
    def run(example: random_plans.Example) -> None:
        counts[random_plans.check(example, path)] += 1

    run()
    assert counts[True] > 1000
