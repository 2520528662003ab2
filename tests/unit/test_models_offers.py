"""Every offer of `deploy models` is planned as it is printed, on GPUs of each kind, with each engine."""

from __future__ import annotations

from pathlib import Path

import offers
import pytest
from headfirst.control.checkpoints.offline import OFFLINE


@pytest.mark.parametrize("fleet", ["2x4090", "8xH100", "1xA10"])
def test_the_first_offers_are_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fleet: str) -> None:
    """tests/long/test_offers.py plans all of them, on more GPUs and with each engine."""
    monkeypatch.setenv(OFFLINE, "1")
    offers.check(tmp_path / "cluster.ini", offers.FLEETS[fleet], "vllm", most=6)
