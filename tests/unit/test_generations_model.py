"""Generations under random histories; tests/long/test_generations_histories.py runs many more."""

from __future__ import annotations

from generations_model import END, GenerationsModel, happened, run_histories


def test_no_history_mixes_versions() -> None:
    """Numbered ones; which history a number is, depends on the modules that are loaded (Hypothesis)."""
    run_histories(12, range(5))
    assert happened["steps"] >= 4_000
    assert happened["returned"]
    assert happened["lost locks"]
    assert happened["replaced"]
    assert happened["resized"]
    assert happened["renamed"]
    assert happened["came back"], "no change failed while something served"


def test_a_rollback_that_is_killed_at_any_step_goes_on() -> None:
    for steps in range(1, 36):
        model = GenerationsModel()
        model.first()
        model.act("up", 3, operator=0, steps=END, then="sleeps", wait_s=0.0)
        model.act("rollback", 0, operator=0, steps=steps, then="killed", wait_s=0.0)
        model.act("rollback", 0, operator=0, steps=END, then="sleeps", wait_s=601.0)
        model.all_ranks_of_a_replica_run_one_generation()
        model.teardown()
