"""Every offer of `deploy models` is planned as it is printed, on GPUs of each kind, with each engine."""

from __future__ import annotations

from pathlib import Path

import offers
import pytest
from headfirst.control.checkpoints.offline import OFFLINE
from headfirst.decide import engines


@pytest.mark.parametrize("engine", engines.names())
@pytest.mark.parametrize("fleet", offers.FLEETS.values(), ids=offers.FLEETS)
def test_every_offer_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fleet: tuple[str, int, int], engine: str
) -> None:
    monkeypatch.setenv(OFFLINE, "1")
    offers.check(tmp_path / "cluster.ini", fleet, engine)
