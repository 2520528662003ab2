"""Every offer of `deploy models` is planned as it is printed, on GPUs of each kind, with each engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.control.checkpoints.offline import OFFLINE
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.verbs.models import models
from headfirst.decide import engines

FLEETS = {
    "2x4090": ("RTX4090", 1, 2),
    "8xH100": ("H100-80G", 1, 8),
    "2x8xH100": ("H100-80G", 2, 8),
    "8xH200": ("H200-141G", 1, 8),
    "1xA10": ("A10", 1, 1),
    "8xA100": ("A100-80G", 1, 8),
}


def inventory(path: Path, gpu: str, nodes: int, gpus: int) -> Path:
    workers = "".join(f"n{number} ansible_host=192.0.2.{number}\n" for number in range(2, nodes + 1))
    path.write_text(
        f"[head]\nn1 ansible_host=192.0.2.1\n[workers]\n{workers}"
        f"[all:vars]\ngpu={gpu}\ngpus={gpus}\nnic=eth0\nhca=none\n"
    )
    return path


@pytest.mark.parametrize("engine", engines.names())
@pytest.mark.parametrize("fleet", FLEETS.values(), ids=FLEETS)
def test_every_offer_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fleet: tuple[str, int, int], engine: str
) -> None:
    monkeypatch.setenv(OFFLINE, "1")
    path = inventory(tmp_path / "cluster.ini", *fleet)
    hosts = path.read_text()
    survey = models([path], [], task=None, engine=engine, probe=False)
    assert survey.offers
    for offer in survey.offers:
        path.write_text(hosts + "\n".join(offer.lines) + "\n")
        planned = prepare([path], [], probe=False).plan.services[0]
        assert planned.fit.fits, offer.lines
        assert len(planned.replicas) == offer.replicas
