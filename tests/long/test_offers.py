"""Offers of `deploy models` and advice of `deploy plan` are planned as they are printed, with each engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import offers
import pytest
from headfirst.common.errors import InputError
from headfirst.control.checkpoints.describe import OFFLINE
from headfirst.decide import engines
from headfirst.decide.model import catalogue
from inventory_server import quick_inventories


@pytest.fixture(scope="module", autouse=True)
def _quick_inventories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with quick_inventories(tmp_path_factory.mktemp("reader")):
        yield


@pytest.mark.parametrize("engine", engines.names())
@pytest.mark.parametrize("fleet", offers.FLEETS.values(), ids=offers.FLEETS)
def test_every_offer_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fleet: tuple[str, int, int], engine: str
) -> None:
    monkeypatch.setenv(OFFLINE, "1")
    offers.check(tmp_path / "cluster.ini", fleet, engine)


@pytest.mark.parametrize("engine", engines.names())
@pytest.mark.parametrize("fleet", offers.ODD_FLEETS.values(), ids=offers.ODD_FLEETS)
def test_advice_is_planned_with_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fleet: tuple[str, int, int], engine: str
) -> None:
    monkeypatch.setenv(OFFLINE, "1")
    checked = 0
    for id in catalogue.ids()[::9]:
        variables = {"model": id, "engine": engine, "trust_remote_code": "true"}
        try:
            checked += len(offers.check_advice(tmp_path / "cluster.ini", fleet, variables))
        except InputError:  # an engine that does not serve the model has no plan
            continue
    assert checked
