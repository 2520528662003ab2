"""Inventory to the models that its GPUs can serve. Changes nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import DEFAULT_HUB, HUBS
from pydantic import BaseModel

from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.common.untrusted import shown
from headfirst.control.checkpoints import user_catalogue
from headfirst.control.checkpoints.describe import OFFLINE, is_offline
from headfirst.control.deployment.hosts.probe import lacks_facts, probe_hosts
from headfirst.control.inventory.inventory import load
from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.hardware import gpus
from headfirst.decide.model import catalogue
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.task import Task
from headfirst.decide.plan.host import hardware, network
from headfirst.decide.plan.sizing.models import Models, survey
from headfirst.decide.plan.sizing.sizes import Fleet
from headfirst.decide.plan.trial import ServiceTrial
from headfirst.decide.plan.weights.duration import WeightsWork, estimate, rates


def models(
    inventories: Sequence[Path],
    extra_vars: Sequence[str],
    *,
    task: Task | None,
    engine: str | None,
    probe: bool,
    model: str | None = None,
) -> Models:
    """Every model of the catalogue, as an offer or a refusal, for all hosts of the inventory that serve.

    With `model`, that one alone, in any case of letters. With `probe`, the hosts are asked for what the
    inventory omits. Raises InputError where the GPUs are not known or differ.
    """
    user_catalogue.load()
    cluster = load(inventories, extra_vars, needs_model=False)
    if probe and lacks_facts(cluster):
        cluster = probe_hosts(cluster, extra_vars)
    settings = cluster.services[0].settings
    trial = ServiceTrial.on_all_hosts(cluster)
    base = dict(trial.other_model)
    if engine not in (None, settings.engine):
        base["engine"] = engine
        chosen = engines.get(engine)
    else:
        chosen, _ = engines.of_service(cluster.services[0])
    ids = [id for id in catalogue.ids() if model is None or id.lower() == model.lower()]
    return survey(
        fleet(cluster),
        chosen,
        [entry for id in ids if (entry := catalogue.lookup(id))],
        task=task,
        seconds=lambda checkpoint, convert: _seconds(cluster, checkpoint, convert),
        trial=trial,
        base=base,
    )


class Refreshed(BaseModel):
    """What became of one model. `content`: the commit that was read, or a hash of all hashes."""

    model: str
    state: Literal["new", "changed", "same", "failed"]
    content: str | None = None
    reason: str | None = None


class Refresh(BaseModel):
    """What `deploy models --refresh` prints."""

    hub: str
    file: str
    models: list[Refreshed]


Report = Callable[[Refreshed, int, int, float], None]
"""Called after each model: how many of how many are done, and about how many seconds are left."""


def refresh(source: str, ids: Sequence[str], report: Report) -> Refresh:
    """Read models from the hub `source` into the user's catalogue: `ids`, or all of the catalogue.

    Each is stored when it is read. NotReadyError where the hub does not answer.
    """
    # httpx takes 250 ms to import, which a list of the models does not need.
    from headfirst.control.checkpoints.hub import read_hub
    from headfirst.control.checkpoints.hub_requests import Hub, HubUnreachableError

    if is_offline(os.environ):
        raise InputError(f"--refresh asks a hub, and {OFFLINE} is set", hint=f"Unset it: unset {OFFLINE}")
    user_catalogue.load()
    hub = Hub.of(source, os.environ)
    every = list(ids or catalogue.ids())
    done: list[Refreshed] = []
    begin = time.monotonic()
    for id in every:
        try:
            if not HUBS[source].has(id):
                raise InputError(f"{shown(id)} is not a hub's id: {HUBS[source].ids}")
            sent = read_hub(hub, id, revision=catalogue.trusted_commit(id, source))
            state = user_catalogue.store(id, user_catalogue.entry_of(sent, hub.name))
            done.append(Refreshed(model=id, state=state, content=sent.content))
        except HubUnreachableError as error:
            raise NotReadyError(
                f"{error.what.rstrip('.')}; {len(done)} of {len(every)} models were read and are stored.",
                hint="Run it again: what was read is in the cache.",
            ) from None
        except HeadfirstError as error:
            done.append(Refreshed(model=id, state="failed", reason=error.what))
        seconds = (time.monotonic() - begin) / len(done) * (len(every) - len(done))
        report(done[-1], len(done), len(every), seconds)
    return Refresh(hub=hub.name, file=str(user_catalogue.refreshed_file()), models=done)


def hub_of(inventories: Sequence[Path], extra_vars: Sequence[str]) -> str:
    """The hub of an inventory; without one the default of model_source."""
    if not inventories:
        return DEFAULT_HUB
    source = load(inventories, extra_vars, needs_model=False).services[0].settings.model_source
    return source if source in HUBS else DEFAULT_HUB


def fleet(cluster: Cluster) -> Fleet:
    """The GPUs of all hosts with ranks, or those that the only service lists; InputError where they are not
    known or differ."""
    where = str(cluster.inventories[0])
    if cluster.services[0].settings.engine_device == "cpu":
        raise InputError(
            "models are listed for GPUs, and this inventory has engine_device=cpu",
            where=cluster.given.get("engine_device") or where,
            hint="Leave engine_device out and write gpus= and gpu=, or choose a small model yourself.",
        )
    unknown = [host.name for host in cluster.ranks if not (host.gpu and host.gpus)]
    if unknown:
        raise InputError(
            f"the GPUs of {', '.join(unknown)} are not known",
            where=where,
            hint="Write gpus=8 gpu=A100-80G in the inventory, or probe the hosts: deploy models --probe.",
        )
    devices = [
        gpus.reported(host.gpu or "", host.gpu_memory_bytes, host.gpu_capability, where=host.name)
        for host in cluster.ranks
    ]
    hardware.require_nvidia(devices, where)
    listed_devices = cluster.services[0].settings.gpu_devices if len(cluster.services) == 1 else []
    counts = {len(listed_devices) or host.gpus or 0 for host in cluster.ranks}
    kinds = sorted({gpu.name for gpu in devices})
    if len(kinds) > 1 or len(counts) > 1:
        listed = ", ".join(f"{host.name} {host.gpus} × {host.gpu}" for host in cluster.ranks)
        raise InputError(
            f"the hosts have different GPUs: {listed}",
            where=where,
            hint="Replicas are alike: write an inventory for the hosts of each kind.",
        )
    smallest = min(devices, key=lambda gpu: gpu.memory_bytes)
    rdma = network.rdma_between(cluster.ranks, gpus=True)
    return Fleet(smallest, len(cluster.ranks), counts.pop(), rdma)


def _seconds(cluster: Cluster, checkpoint: Checkpoint, convert: bool) -> float:
    memories = [host.memory_bytes for host in cluster.ranks if host.memory_bytes]
    job = WeightsWork(
        source_bytes=checkpoint.total_bytes,
        served_bytes=checkpoint.bf16_bytes if convert else checkpoint.total_bytes,
        largest_shard_bytes=checkpoint.largest_shard_bytes,
        nodes=len(cluster.ranks),
        convert=convert,
        from_hub=True,
        memory_bytes=min(memories, default=None),
    )
    download_rate = cluster.settings.download_rate
    return estimate(job, rates(cluster.ranks, download_rate, from_hub=True, convert=convert)).seconds
