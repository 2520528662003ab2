"""Cluster + checkpoints to Plan. A pure function: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from headfirst import engines
from headfirst.cluster.settings import HUBS
from headfirst.cluster.source import locate_variable
from headfirst.cluster.types import Cluster, Service
from headfirst.engines.base import Engine
from headfirst.engines.layout import Machines
from headfirst.errors import InputError
from headfirst.hardware import gpus
from headfirst.hardware.gpus import Gpu
from headfirst.model import catalogue, families
from headfirst.model.checkpoint import Checkpoint
from headfirst.model.task import Task
from headfirst.plan import (
    monitoring,
    network,
    parallel,
    presets,
    proxy,
    router,
    secret_texts,
    standby,
    trust,
    types,
    webui,
)
from headfirst.plan.adapters import adapters
from headfirst.plan.alternatives import alternatives
from headfirst.plan.fit import fit, kv_tokens
from headfirst.plan.launching import Launching
from headfirst.plan.sizes import Fleet
from headfirst.plan.types import Plan, Weights, WeightsShare
from headfirst.plan.weights import carrier, layers, placement, precision, warming
from headfirst.plan.weights.placement import Placement
from headfirst.plan.weights.rates import connections, rates
from headfirst.plan.weights.transfer import Job, estimate


def build(cluster: Cluster, checkpoints: Mapping[str | None, Checkpoint]) -> Plan:
    """Decide everything that `deploy up` carries out; `checkpoints` are by the name of their service.

    Raises InputError for what cannot work.
    """
    services = [_service(cluster, service, checkpoints[service.name]) for service in cluster.services]
    chats = [(url, service.name) for service in webui.chats(services) for url in service.urls]
    keys = [secret_texts.api_key(name) for _, name in chats]
    page = webui.plan(cluster, [url for url, _ in chats], keys) if chats else None
    front = proxy.plan(cluster, services, page) if cluster.has_proxy else None
    spares = [host.name for host in cluster.spares]
    watch = monitoring.plan(cluster)
    return Plan(
        cluster=cluster.name,
        services=services,
        webui=page,
        spares=spares,
        monitoring=watch,
        proxy=front,
        container_runtime=cluster.settings.container_runtime,
    )


def _service(cluster: Cluster, service: Service, checkpoint: Checkpoint) -> types.Service:
    settings = service.settings
    where = str(cluster.inventories[0])
    engine, note = engines.of_image(
        settings.engine,
        settings.engine_image,
        settings.engine_version,
        where=locate_variable("engine_version" if settings.engine_version else "engine", cluster.inventories),
    )
    where_arguments = locate_variable("engine_args", cluster.inventories)
    arguments = engine.check_arguments(settings.engine_args).require(where=where_arguments)
    gpu, machines = _gpu(service, where), _machines(service, where)
    dtype = precision.choose(
        checkpoint, gpu, engine, device=settings.engine_device, where=where, arguments=arguments
    )
    tokens = None
    if gpu is not None:
        tokens = partial(kv_tokens, checkpoint, gpu, engine=engine, dtype=dtype.dtype, arguments=arguments)
    rdma = network.rdma_between(service.replicas[0].hosts, gpus=settings.engine_device == "cuda")
    sizes = parallel.choose(
        checkpoint,
        machines,
        engine,
        arguments,
        dtype=dtype.dtype,
        tensor=settings.tensor_parallel,
        pipeline=settings.pipeline_parallel,
        rdma=rdma,
        tokens=tokens,
        where=where,
    )
    fewer = None
    if tokens is not None and len(service.replicas) == 1 and not settings.tensor_parallel:
        fewer = parallel.fewer_nodes(
            checkpoint, machines, engine, arguments, dtype=dtype.dtype, rdma=rdma, tokens=tokens
        )
    task = settings.task or families.task(checkpoint)
    choice = presets.choose(
        presets.Situation(
            checkpoint=checkpoint,
            engine=engine,
            task=task,
            preset=settings.preset,
            parsers=presets.wants_parsers(settings.parsers, settings.preset),
            gpu=gpu,
            machines=machines,
            layout=sizes,
            dtype=dtype.dtype,
            user_arguments=tuple(settings.engine_args),
        )
    )
    arguments = engine.check_arguments(choice.arguments).require(where=where_arguments)
    sizes = engine.layout(sizes.tensor, sizes.pipeline, arguments)
    served = checkpoint.converted if dtype.convert_to_bf16 else checkpoint
    _refuse_unsupported(engine, served, gpu, task, arguments, where)
    lora = adapters(
        settings,
        served_name=service.served_model_name,
        where=locate_variable("adapters", cluster.inventories),
    )
    trusted = trust.choose(settings, checkpoint, arguments, where=where)
    spans = layers.by_host(service, engine, checkpoint, sizes)
    room = fit(checkpoint, gpu, sizes, engine, dtype=dtype.dtype, arguments=arguments)
    weights = _weights(cluster, service, checkpoint, room, sizes.world, spans, convert=dtype.convert_to_bf16)
    launch = partial(
        Launching,
        runtime=cluster.settings.container_runtime,
        engine=engine,
        checkpoint=checkpoint,
        layout=sizes,
        task=task,
        model_dir=weights.directory,
        adapters={adapter.name: adapter.directory for adapter in lora},
        remote_code=trusted.remote_code,
        arguments=choice.arguments,
    )
    launching = launch(service)
    return types.Service(
        name=service.name,
        model=checkpoint.id,
        model_described_by=f"{checkpoint.source}: {checkpoint.note}"
        if checkpoint.note
        else checkpoint.source,
        served_model_name=service.served_model_name,
        engine=engine.name,
        engine_version=engine.version,
        engine_cuda=engine.cuda(launching.image) if settings.engine_device == "cuda" else "",
        device=settings.engine_device,
        task=task,
        chosen_arguments=list(choice.chosen),
        arguments_left_out=list(choice.left_out),
        adapters=lora,
        tensor_parallel=sizes.tensor,
        pipeline_parallel=sizes.pipeline,
        data_parallel=sizes.data,
        world_size=sizes.world,
        convert_to_bf16=dtype.convert_to_bf16,
        convert_reason=dtype.reason,
        trust_remote_code=trusted.remote_code,
        trust_reason=trusted.reason,
        fit=room,
        alternatives=_alternatives(machines, checkpoint, gpu, engine, dtype=dtype.dtype, rdma=rdma)
        if room.fits is False
        else [],
        weights=weights,
        cache_dir=settings.engine_cache_dir,
        readiness=_readiness(service, engine, task),
        config_file=secret_texts.config_file(engine, service.name),
        replicas=[launching.replica(replica) for replica in service.replicas],
        scheduled=[launching.scheduled(replica) for replica in service.replicas],
        standbys=standby.standbys(cluster, service, launch),
        routers=router.routers(cluster, service),
        notes=[text for text in (note, fewer and parallel.replicas_hint(machines, fewer)) if text],
    )


def _readiness(service: Service, engine: Engine, task: Task) -> types.Readiness:
    asked = engine.readiness(task)
    return types.Readiness(
        path=asked.path,
        probe_path=asked.probe_path,
        probe_body={"model": service.served_model_name, **asked.probe_body},
        start_seconds=service.settings.ready_timeout,
        hang_seconds=service.settings.hang_timeout if asked.generates else None,
    )


def _refuse_unsupported(
    engine: Engine,
    checkpoint: Checkpoint,
    gpu: Gpu | None,
    task: Task,
    arguments: Mapping[str, Any],
    where: str,
) -> None:
    problems = engine.support_problems(checkpoint, gpu, task, arguments)
    if problems:
        raise InputError(
            f"{engine.title} {engine.version} cannot serve {checkpoint.id}: {'; '.join(problems)}.",
            where=where,
            hint="Change what it names, choose another engine (engine=), or another model "
            "(`deploy models` lists what these GPUs can serve).",
        )


def _alternatives(
    machines: Machines,
    checkpoint: Checkpoint,
    gpu: Gpu | None,
    engine: Engine,
    *,
    dtype: str,
    rdma: bool | None,
) -> list[str]:
    if gpu is None or machines.ranks_per_node is None:
        return []
    fleet = Fleet(gpu, machines.nodes, machines.ranks_per_node, rdma)
    others = [found for id in catalogue.ids() if (found := catalogue.lookup(id))]
    return alternatives(checkpoint, fleet, engine, others, dtype=dtype)


def _gpu(service: Service, where: str) -> Gpu | None:
    """The GPU of all ranks; in a mix the larger ones would wait for the smaller."""
    named = [host for host in service.hosts if host.gpu or host.gpu_memory_bytes]
    if service.settings.engine_device == "cpu" or not named:
        return None
    found = [
        gpus.reported(host.gpu or "GPU", host.gpu_memory_bytes, host.gpu_capability, where=host.name)
        for host in named
    ]
    if other := next((gpu for gpu in found if gpu.vendor != "nvidia"), None):
        raise InputError(
            f"{other.name} is not an NVIDIA GPU: its driver, devices and images are not set up yet",
            where=where,
            hint="`deploy models` estimates what such GPUs hold; start the engine's own image by hand.",
        )
    listed = sorted({gpu.name for gpu in found})
    if len(listed) > 1:
        raise InputError(
            f"the ranks have different GPUs: {', '.join(listed)}",
            where=where,
            hint="Ranks run at the pace and with the memory of the smallest: list hosts of one type.",
        )
    return min(found, key=lambda gpu: gpu.memory_bytes)


def _machines(service: Service, where: str) -> Machines:
    """The hosts of a replica; all replicas are alike."""
    places = [place for replica in service.replicas for place in replica.places]
    nodes = len(service.replicas[0].places)
    if service.settings.engine_device == "cpu":
        return Machines(nodes, None)
    missing = [place.host.name for place in places if not place.gpus]
    if missing:
        raise InputError(
            f"the number of GPUs of {', '.join(dict.fromkeys(missing))} is not known",
            where=where,
            hint="Write gpus=8 gpu=A100-80G in the inventory, or probe the hosts: deploy plan --probe.",
        )
    counts = {place.gpus for place in places}
    if len(counts) > 1:
        listed = ", ".join(f"{place.host.name} {place.gpus}" for place in places)
        raise InputError(
            f"the ranks have different numbers of GPUs: {listed}",
            where=where,
            hint="Ranks are spread evenly over the nodes: give each the same gpus=.",
        )
    return Machines(nodes, counts.pop())


def _weights(
    cluster: Cluster,
    service: Service,
    checkpoint: Checkpoint,
    room: types.Fit,
    ranks: int,
    spans: Mapping[str, range],
    *,
    convert: bool,
) -> Weights:
    settings = service.settings
    name = checkpoint.id.rstrip("/").rpartition("/")[2]
    where = locate_variable("weights_shared", cluster.inventories)
    place = placement.choose(service, convert=convert, where=where)
    if place.how == "in_place" or _has_one_folder(service):  # what all hosts read has all layers
        spans = dict.fromkeys(spans, range(checkpoint.layers))
    job = _weights_job(service, checkpoint, place, spans, convert=convert)
    cache = warming.choose(
        settings,
        service.hosts,
        job.served_bytes,
        rank_bytes=room.weight_bytes_per_rank,
        ranks_on_node=-(-ranks // len(service.replicas[0].places)),
    )
    keep_fp8 = convert and settings.keep_fp8
    passing = int(job.source_bytes * job.kept) if keep_fp8 else job.at_once_bytes
    found = rates(service.hosts, cluster.settings.download_rate, from_hub=job.from_hub, convert=convert)
    carried = _carrier(cluster, service, in_place=place.how == "in_place")
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
        connections=max(connections(found), *(len(ports) for ports in carried.ports.values()), 0),
        encrypt=settings.weights_encrypt,
        carrier=carried,
        fetch=settings.weights_fetch if job.from_hub and job.nodes > 1 else "head",
        time=estimate(job, found, share=settings.weights_fetch == "auto"),
        hidden_layers=checkpoint.layers,
        shares=_shares(checkpoint, spans, job),
    )


def _shares(checkpoint: Checkpoint, spans: Mapping[str, range], job: Job) -> list[WeightsShare]:
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
) -> Job:
    # One node reads what all see, and writes what all write to.
    alone = place.how == "in_place" or _has_one_folder(service)
    memories = [host.memory_bytes for host in service.hosts if host.memory_bytes]
    from_hub = service.settings.model_source in HUBS
    return Job(
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


def _carrier(cluster: Cluster, service: Service, *, in_place: bool) -> types.Carrier:
    if in_place:
        return types.Carrier(kind="tcp")
    where = locate_variable("weights_carrier", cluster.inventories)
    return carrier.choose(service, where=where or str(cluster.inventories[0]))
