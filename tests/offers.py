"""Offers of `deploy models`, planned as they are printed."""

from __future__ import annotations

from pathlib import Path

from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.verbs.models import models

# GPU, nodes, GPUs of each.
FLEETS = {
    "2x4090": ("RTX4090", 1, 2),
    "8xH100": ("H100-80G", 1, 8),
    "2x8xH100": ("H100-80G", 2, 8),
    "8xH200": ("H200-141G", 1, 8),
    "1xA10": ("A10", 1, 1),
    "8xA100": ("A100-80G", 1, 8),
    "2xT4": ("T4", 1, 2),  # without BF16
}


def inventory(path: Path, gpu: str, nodes: int, gpus: int) -> Path:
    """Write hosts without a model."""
    workers = "".join(f"n{number} ansible_host=192.0.2.{number}\n" for number in range(2, nodes + 1))
    path.write_text(
        f"[head]\nn1 ansible_host=192.0.2.1\n[workers]\n{workers}"
        f"[all:vars]\ngpu={gpu}\ngpus={gpus}\nnic=eth0\nhca=none\n"
    )
    return path


def check(path: Path, fleet: tuple[str, int, int], engine: str, *, most: int | None = None) -> None:
    """Plan the lines of the offers, the first `most` of them; HF_HUB_OFFLINE is set."""
    hosts = inventory(path, *fleet).read_text()
    survey = models([path], [], task=None, engine=engine, probe=False)
    assert survey.offers
    for offer in survey.offers[:most]:
        path.write_text(hosts + "\n".join(offer.lines) + "\n")
        planned = prepare([path], [], probe=False).plan.services[0]
        assert planned.fit.fits, offer.lines
        assert len(planned.replicas) == offer.replicas
        assert planned.fit.kv_tokens_of_replica == offer.kv_tokens, offer.lines
