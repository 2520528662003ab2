"""Clocks of hosts are compared with the controller's, whatever the way to them takes."""

from __future__ import annotations

import pytest
from ansible_collections.headfirst.serving.plugins.action import host_facts


@pytest.mark.parametrize(
    ("ahead", "round_trip", "skew"),
    [
        (0.2, 0.5, 0.0),  # the time of the way there
        (31.0, 40.0, 0.0),  # a hundred hosts are asked by a busy controller
        (100.0, 2.0, 98.0),
        (-60.0, 1.0, -60.0),
        (-60.0, 45.0, -60.0),
    ],
)
def test_a_clock_is_right_within_the_round_trip(ahead: float, round_trip: float, skew: float) -> None:
    assert host_facts.skew(ahead, round_trip) == skew
