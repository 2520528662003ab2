"""Spares against random histories; tests/long/test_takeover_histories.py runs many more."""

from __future__ import annotations

from takeover_model import TakeoverModel, run_histories


def test_no_takeover_does_harm() -> None:
    """The same ones each time."""
    assert run_histories(5, range(5)) >= 1000
    assert TakeoverModel.takeovers > 100
