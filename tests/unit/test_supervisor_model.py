"""The supervisor against random histories; tests/long/test_supervisor_histories.py runs many more."""

from __future__ import annotations

from supervisor_model import run_histories


def test_no_history_does_harm() -> None:
    """The same ones each time."""
    assert run_histories(9, range(6)) >= 2000
