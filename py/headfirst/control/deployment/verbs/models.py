"""Inventory to the models that its GPUs can serve. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headfirst.common.errors import InputError
from headfirst.control.deployment.hosts.probe import lacks_facts, probe_hosts
from headfirst.control.inventory.inventory import load
from headfirst.decide import engines
from headfirst.decide.cluster.settings import HUBS
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.hardware import gpus
from headfirst.decide.model import catalogue
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.task import Task
from headfirst.decide.plan.host import network
from headfirst.decide.plan.sizing.models import Models, survey
from headfirst.decide.plan.sizing.sizes import Fleet
from headfirst.decide.plan.weights.duration import Job, estimate, rates

# The inventory of a user who searches for a model has none yet.
_ANY_MODEL = "model=/any"


def models(
    inventories: Sequence[Path],
    extra_vars: Sequence[str],
    *,
    task: Task | None,
    engine: str | None,
    probe: bool,
) -> Models:
    """Every model of the catalogue, as an offer or a refusal, for all hosts of the inventory that serve.

    With `probe`, the hosts are asked for what the inventory omits. Raises InputError where the GPUs are not
    known or differ.
    """
    cluster = load(inventories, [*extra_vars, _ANY_MODEL])
    if probe and lacks_facts(cluster):
        cluster = probe_hosts(cluster, [*extra_vars, _ANY_MODEL])
    settings = cluster.services[0].settings
    base = [] if settings.model_source in HUBS else ["model_source=modelscope"]
    if engine not in (None, settings.engine):
        base.append(f"engine={engine}")
        chosen = engines.get(engine)
    else:
        chosen, _ = engines.of_image(settings.engine, settings.engine_image, settings.engine_version)
    return survey(
        fleet(cluster),
        chosen,
        [model for id in catalogue.ids() if (model := catalogue.lookup(id))],
        task=task,
        seconds=lambda checkpoint, convert: _seconds(cluster, checkpoint, convert),
        base_lines=base,
    )


def fleet(cluster: Cluster) -> Fleet:
    """The GPUs of all hosts with ranks; InputError where they are not known or differ."""
    where = str(cluster.inventories[0])
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
    counts = {host.gpus or 0 for host in cluster.ranks}
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
    job = Job(
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
