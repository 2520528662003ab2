"""Generations under random histories; tests/long/test_generations_histories.py runs many more."""

from __future__ import annotations

from generations_model import happened, run_histories


def test_no_history_mixes_versions() -> None:
    """About 2,000 steps, the same ones each time."""
    run_histories(16, derandomize=True)
    assert happened["returned"]
    assert happened["lost locks"]
