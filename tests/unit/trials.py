"""Plans of a service alone on GPUs of one kind, and what these can serve."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from clusters import with_hosts, with_settings
from headfirst.control.inventory.inventory import load
from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.sizing.models import Models, survey
from headfirst.decide.plan.sizing.sizes import Fleet
from headfirst.decide.plan.trial import ServiceTrial


@cache
def _one_host() -> Cluster:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.ini"
        path.write_text("[head]\nn1 ansible_host=192.0.2.1\n[all:vars]\nmodel=/any\n")
        return with_settings(load([path], []), model_source="modelscope")


def trial_on(its: Fleet, **settings: Any) -> ServiceTrial:
    """The trial of a service on these GPUs alone."""
    cluster = with_settings(_one_host(), **settings)
    host = replace(cluster.services[0].hosts[0], gpu=its.gpu.name, gpus=its.gpus_per_node)
    hosts = [replace(host, name=f"n{rank}", address=f"192.0.2.{rank}") for rank in range(1, its.nodes + 1)]
    return ServiceTrial.of(with_hosts(cluster, hosts), 0)


def offered(checkpoints: list[Checkpoint], its: Fleet, *, engine: str = "sglang", **more: Any) -> Models:
    """What the GPUs serve of the checkpoints."""
    trial = more.pop("trial", None) or trial_on(its, engine=engine)
    task = more.pop("task", None)
    return survey(its, engines.get(engine), checkpoints, task=task, seconds=lambda *_: 60.0, trial=trial)
