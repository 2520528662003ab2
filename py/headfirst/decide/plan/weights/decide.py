"""Decides about the weights of a service, of its adapters and its draft: place, members, time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import companion

from headfirst.common.errors import InputError
from headfirst.decide.cluster.settings import FetchMode, ServiceSettings
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.cluster.values import pinned
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.drafting import kind_of_id
from headfirst.decide.plan import trust
from headfirst.decide.plan.types import (
    Adapter,
    DraftModel,
    Fit,
    Weights,
    WeightsMember,
    WeightsShare,
)
from headfirst.decide.plan.weights import layers, placement
from headfirst.decide.plan.weights.duration import WeightsWork, connections, estimate, rates
from headfirst.decide.plan.weights.placement import Placement

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def decide(
    cluster: Cluster,
    service: Service,
    checkpoint: Checkpoint,
    room: Fit,
    host_bytes: int,
    ranks: int,
    spans: Mapping[str, range],
    *,
    convert: bool,
) -> Weights:
    """The weights of a service, for `ranks` ranks; `spans` are the layers that each host loads, and
    `host_bytes` what ranks keep in the memory of a host."""
    settings = service.settings
    name = checkpoint.id.rstrip("/").rpartition("/")[2]
    place = placement.choose(service, convert=convert, where=service.given.get("weights_shared"))
    if place.how == "in_place" or _has_one_folder(service):  # what all hosts read has all layers
        spans = dict.fromkeys(spans, range(checkpoint.layers))
    job = _weights_job(service, checkpoint, place, spans, convert=convert)
    cache = placement.warming(
        settings,
        service.hosts,
        job.served_bytes,
        rank_bytes=room.weight_bytes_per_rank,
        host_bytes=host_bytes,
        ranks_on_node=-(-ranks // len(service.replicas[0].places)),
    )
    keep_fp8 = convert and settings.keep_fp8
    passing = int(job.source_bytes * job.kept) if keep_fp8 else job.at_once_bytes
    all_rates = rates(service.hosts, cluster.settings.download_rate, from_hub=job.from_hub, convert=convert)
    shares = _shares(checkpoint, spans, job)
    fetch = settings.weights_fetch if job.from_hub and job.nodes > 1 else "head"
    return Weights(
        model=checkpoint.id,
        source=settings.model_source,
        revision=trust.revision(settings),
        directory=f"{settings.weights_dir.rstrip('/')}/{name}{'-bf16' if convert else ''}",
        source_bytes=job.source_bytes,
        served_bytes=job.served_bytes,
        keep_fp8=keep_fp8,
        # Shards for others pass through the head.
        disk_bytes=0
        if job.in_place
        else int(job.served_bytes * job.kept) + (passing if convert or job.kept < 1 else 0),
        placement=place.how,
        placement_reason=place.reason,
        warm_cache=cache.how,
        warm_reserve_bytes=cache.reserve_bytes,
        warm_reason=cache.reason,
        connections=connections(all_rates),
        encrypt=settings.weights_encrypt,
        members=_members(cluster, service, checkpoint, shares, fetch=fetch),
        fetch=fetch,
        time=estimate(job, all_rates, share=settings.weights_fetch == "auto"),
        hidden_layers=checkpoint.layers,
        shares=shares,
    )


def _members(
    cluster: Cluster,
    service: Service,
    checkpoint: Checkpoint,
    shares: Sequence[WeightsShare],
    *,
    fetch: FetchMode,
) -> list[WeightsMember]:
    """The hosts of the service, then the spares: each of these may become any rank."""
    layers = {share.host: share.layers for share in shares}
    if layers:
        layers |= {host.name: f"0-{checkpoint.layers - 1}" for host in cluster.spares}
    hosts = (*service.hosts, *cluster.spares)
    return [
        WeightsMember(
            host=host.name,
            addresses=list(host.weights_addresses or [host.address]),
            fetches=fetch != "head" or host is hosts[0],
            layers=layers.get(host.name, ""),
        )
        for host in hosts
    ]


def _shares(checkpoint: Checkpoint, spans: Mapping[str, range], job: WeightsWork) -> list[WeightsShare]:
    if all(span == range(checkpoint.layers) for span in spans.values()):
        return []
    parts = {host: layers.share(checkpoint, span) for host, span in spans.items()}
    return [
        WeightsShare(
            host=host,
            layers=layers.written(spans[host]),
            source_bytes=int(job.source_bytes * part),
            served_bytes=int(job.served_bytes * part),
        )
        for host, part in parts.items()
    ]


def _has_one_folder(service: Service) -> bool:
    return all(host.weights_dir_shared for host in service.hosts)


def _weights_job(
    service: Service, checkpoint: Checkpoint, place: Placement, spans: Mapping[str, range], *, convert: bool
) -> WeightsWork:
    # One node reads what all see, and writes what all write to.
    alone = place.how == "in_place" or _has_one_folder(service)
    memories = [host.memory_bytes for host in service.hosts if host.memory_bytes]
    from_hub = service.settings.source.is_hub
    return WeightsWork(
        source_bytes=checkpoint.total_bytes,
        served_bytes=checkpoint.bf16_bytes if convert else checkpoint.total_bytes,
        largest_shard_bytes=checkpoint.largest_shard_bytes,
        nodes=1 if alone else len(service.hosts),
        convert=convert,
        in_place=place.how == "in_place",
        on_share=place.on_share,
        from_hub=from_hub,
        memory_bytes=min(memories, default=None),
        kept=max(layers.share(checkpoint, span) for span in spans.values()),
        sent=layers.sent(checkpoint, spans, service.hosts[0].name),
        fetchers=len(service.hosts)
        if from_hub and not alone and service.settings.weights_fetch == "all"
        else 1,
    )


def adapters(service: Service) -> list[Adapter]:
    """One entry an adapter, in the order of the inventory.

    A hub id comes from the model's own hub; beside a model that comes from none, from ModelScope. Raises
    InputError for an adapter that has the model's own name in the API. The folder's name has the revision,
    as that of a draft.
    """
    settings, known = service.settings, service.adapters
    if service.served_model_name in settings.adapters:
        raise InputError(
            f"the adapter {service.served_model_name} has the name of the model itself",
            where=service.given.get("adapters"),
            hint="Requests name the model or an adapter: choose another name in adapters=.",
        )
    folder = f"{settings.weights_dir.rstrip('/')}/adapters"
    listed = []
    for name, text in settings.adapters.items():
        id, _, revision = pinned(text)
        listed.append(
            Adapter(
                name=name,
                source=companion(id, settings.model_source).name,
                id=id,
                directory=f"{folder}/{name}{at_revision(revision)}",
                revision=revision or None,
                rank=known[name].largest_rank if name in known else None,
            )
        )
    return listed


def at_revision(revision: str | None) -> str:
    """What follows in the name of a folder whose content is at a revision of its hub."""
    return f"--{_UNSAFE.sub('-', revision)}" if revision else ""


def draft_model(settings: ServiceSettings, known: Checkpoint | None) -> DraftModel | None:
    """The model that drafts for the service's; `known`: its checkpoint, where it was read.

    Its source is chosen as that of an adapter. The folder has the owner's name too, since repositories of
    several owners have one name, and the revision, so that another one is another container, which a rollback
    undoes.
    """
    id = settings.draft_model
    if id is None:
        return None
    source = companion(id, settings.model_source)
    owner, _, name = id.rstrip("/").rpartition("/")
    revision = settings.draft_model_revision if source.is_hub else None
    folder = f"{settings.weights_dir.rstrip('/')}/drafts"
    of_hub = f"{folder}/{owner}/{name}{at_revision(revision)}"
    drafting = known.drafting if known else None
    kind = (drafting.kind if drafting else "standalone") if known else kind_of_id(id) or ""
    return DraftModel(
        name=name,
        source=source.name,
        id=id,
        directory=of_hub if source.is_hub else f"{folder}/{name}",
        revision=revision,
        kind=kind,
        described_by=known.described_by if known else "",
        source_bytes=known.total_bytes if known else None,
    )


def timed_draft(cluster: Cluster, service: Service, draft: DraftModel | None) -> DraftModel | None:
    """The draft with the time until every node has proven its copy, which is brought after the model."""
    checkpoint, hosts = service.draft, service.hosts
    if draft is None or checkpoint is None:
        return draft
    job = WeightsWork(
        source_bytes=checkpoint.total_bytes,
        served_bytes=checkpoint.total_bytes,
        largest_shard_bytes=checkpoint.largest_shard_bytes,
        nodes=1 if _has_one_folder(service) else len(hosts),
        convert=False,
        from_hub=draft.from_hub,
    )
    line_rates = rates(hosts, cluster.settings.download_rate, from_hub=draft.from_hub, convert=False)
    return draft.model_copy(update={"time": estimate(job, line_rates)})
