"""Cluster + checkpoint to Plan. A pure function: no I/O, no clock."""

from __future__ import annotations

from headfirst import engines
from headfirst.cluster.source import locate_variable
from headfirst.cluster.types import Cluster, Host
from headfirst.containers import names
from headfirst.containers.docker_run import docker_run
from headfirst.containers.spec import Container
from headfirst.engines.base import Engine, LaunchRequest
from headfirst.errors import InputError
from headfirst.model.checkpoint import Checkpoint
from headfirst.plan import cores, gpus, network, parallel, precision, trust, webui
from headfirst.plan.fit import fit
from headfirst.plan.gpus import Gpu
from headfirst.plan.rates import rates, sessions
from headfirst.plan.transfer import Job, estimate
from headfirst.plan.types import Node, NodeNetwork, Plan, Weights

# Carries the API key (mode 0600): on an argv everybody on the host could read it.
ENGINE_CONFIG = "/etc/headfirst/engine.yaml"


def build(cluster: Cluster, checkpoint: Checkpoint) -> Plan:
    """Decide everything that `deploy up` carries out. Raises InputError for what cannot work."""
    settings = cluster.settings
    engine = engines.get(settings.engine)
    arguments = engine.check_arguments(settings.engine_args).require(where=_where_arguments(cluster))
    gpu = _gpu(cluster)
    dtype = precision.choose(checkpoint, gpu, device=settings.engine_device)
    sizes = parallel.choose(
        checkpoint,
        _machines(cluster),
        dtype=dtype.dtype,
        tensor=settings.tensor_parallel,
        pipeline=settings.pipeline_parallel,
        where=str(cluster.inventories[0]),
    )
    trusted = trust.choose(settings, checkpoint, arguments, where=str(cluster.inventories[0]))
    weights = _weights(cluster, checkpoint, convert=dtype.convert_to_bf16)
    image = settings.engine_image or engine.default_image(settings.engine_device)
    networks = network.choose(cluster.ranks, gpus=settings.engine_device == "cuda")
    nodes = []
    for rank, (host, chosen) in enumerate(zip(cluster.ranks, networks, strict=True)):
        request = LaunchRequest(
            model_dir=weights.directory,
            served_name=cluster.served_model_name,
            parallel=sizes,
            nodes=len(cluster.ranks),
            rank=rank,
            head_address=cluster.head.address,
            dist_port=settings.dist_port,
            address=chosen.host_ip,
            port=settings.engine_port,
            listen_address=host.address,
            device=settings.engine_device,
            trust_remote_code=trusted.remote_code,
            config_file=ENGINE_CONFIG,
            nic=chosen.nic,
            hca=chosen.hca,
            ib_gid_index=chosen.ib_gid_index,
            cpu_cores=cores.share(host, max(1, sizes.world // len(cluster.ranks)))
            if settings.engine_device == "cpu"
            else (),
            extra_args=tuple(settings.engine_args),
            extra_env=settings.engine_env,
        )
        nodes.append(_node(cluster, host, chosen, engine, request, image))
    return Plan(
        cluster=cluster.name,
        model=checkpoint.id,
        model_described_by=f"{checkpoint.source}: {checkpoint.note}"
        if checkpoint.note
        else checkpoint.source,
        served_model_name=cluster.served_model_name,
        engine=engine.name,
        engine_version=engine.version,
        device=settings.engine_device,
        tensor_parallel=sizes.tensor,
        pipeline_parallel=sizes.pipeline,
        world_size=sizes.world,
        convert_to_bf16=dtype.convert_to_bf16,
        convert_reason=dtype.reason,
        trust_remote_code=trusted.remote_code,
        trust_reason=trusted.reason,
        fit=fit(checkpoint, gpu, sizes, engine, dtype=dtype.dtype, arguments=arguments),
        weights=weights,
        engine_port=settings.engine_port,
        dist_port=settings.dist_port,
        engine_url=cluster.engine_url,
        nodes=nodes,
        webui=webui.plan(cluster),
    )


def _where_arguments(cluster: Cluster) -> str | None:
    return locate_variable("engine_args", cluster.inventories)


def _gpu(cluster: Cluster) -> Gpu | None:
    """The GPU of all ranks; a mix would leave the larger ones waiting and needs a wish said aloud."""
    named = [host for host in cluster.ranks if host.gpu]
    if cluster.settings.engine_device == "cpu" or not named:
        return None
    found = [
        gpus.reported(host.gpu or "", host.gpu_memory_bytes, host.gpu_capability, where=host.name)
        for host in named
    ]
    names = sorted({gpu.name for gpu in found})
    if len(names) > 1:
        raise InputError(
            f"the ranks have different GPUs: {', '.join(names)}",
            where=str(cluster.inventories[0]),
            hint="Ranks run at the pace and with the memory of the smallest: list hosts of one kind.",
        )
    return min(found, key=lambda gpu: gpu.memory_bytes)


def _machines(cluster: Cluster) -> parallel.Machines:
    if cluster.settings.engine_device == "cpu":
        return parallel.Machines(len(cluster.ranks), None)
    missing = [host.name for host in cluster.ranks if not host.gpus]
    if missing:
        raise InputError(
            f"the number of GPUs of {', '.join(missing)} is not known",
            where=str(cluster.inventories[0]),
            hint="Write gpus=8 gpu=A100-80G in the inventory, or ask the hosts: deploy plan --probe.",
        )
    counts = {host.gpus for host in cluster.ranks}
    if len(counts) > 1:
        listed = ", ".join(f"{host.name} {host.gpus}" for host in cluster.ranks)
        raise InputError(
            f"the ranks have different numbers of GPUs: {listed}",
            where=str(cluster.inventories[0]),
            hint="Ranks are spread evenly over the nodes: give each the same gpus=.",
        )
    return parallel.Machines(len(cluster.ranks), counts.pop())


def _weights(cluster: Cluster, checkpoint: Checkpoint, *, convert: bool) -> Weights:
    settings = cluster.settings
    name = checkpoint.id.rstrip("/").rpartition("/")[2]
    job = _weights_job(cluster, checkpoint, convert=convert)
    keep_fp8 = convert and settings.keep_fp8
    passing = job.source_bytes if keep_fp8 else job.at_once_bytes
    found = rates(cluster, from_hub=job.from_hub, convert=convert)
    return Weights(
        model=checkpoint.id,
        source=settings.model_source,
        revision=trust.revision(settings),
        directory=f"{settings.weights_dir.rstrip('/')}/{name}{'-bf16' if convert else ''}",
        source_bytes=job.source_bytes,
        served_bytes=job.served_bytes,
        keep_fp8=keep_fp8,
        disk_bytes=job.served_bytes + (passing if convert else 0),
        sessions=sessions(found),
        time=estimate(job, found),
    )


def _weights_job(cluster: Cluster, checkpoint: Checkpoint, *, convert: bool) -> Job:
    memories = [host.memory_bytes for host in cluster.ranks if host.memory_bytes]
    return Job(
        source_bytes=checkpoint.total_bytes,
        served_bytes=checkpoint.bf16_bytes if convert else checkpoint.total_bytes,
        largest_shard_bytes=checkpoint.largest_shard_bytes,
        nodes=len(cluster.ranks),
        convert=convert,
        from_hub=cluster.settings.model_source in ("modelscope", "huggingface"),
        memory_bytes=min(memories, default=None),
    )


def _node(
    cluster: Cluster, host: Host, chosen: NodeNetwork, engine: Engine, request: LaunchRequest, image: str
) -> Node:
    settings = cluster.settings
    cuda = settings.engine_device == "cuda"
    command = engine.launch_argv(request)
    volumes = [f"{request.model_dir}:{request.model_dir}:ro"]
    # The role `engine` writes the file on the ranks that read it.
    volumes += [f"{ENGINE_CONFIG}:{ENGINE_CONFIG}:ro"] if ENGINE_CONFIG in command else []
    container = Container(
        name=names.ENGINE,
        image=image,
        command=command,
        environment=engine.environment(request),
        ipc_mode="host",
        shm_size=settings.shm_size,
        volumes=volumes,
        # RDMA needs its devices and pinned memory, and nothing more: not --privileged.
        devices=["/dev/infiniband"] if chosen.hca else [],
        cap_add=["IPC_LOCK"] if chosen.hca else [],
        ulimits={"memlock": -1, "stack": 67108864} if cuda else {},
        gpus="all" if cuda else None,
        # A rank that dies ends the others; all come back and meet again. Set when the service has answered.
        restart_policy="unless-stopped",
    )
    return Node(
        host=host.name,
        address=host.address,
        rank=request.rank,
        network=chosen,
        container=container,
        docker_run=docker_run(container),
    )
