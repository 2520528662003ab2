"""Spares against random histories; tests/long/test_takeover_histories.py runs many more."""

from __future__ import annotations

from takeover_model import TakeoverModel, run_histories


def test_no_takeover_does_harm() -> None:
    assert run_histories(3, range(3)) >= 300
    assert TakeoverModel.takeovers > 30
