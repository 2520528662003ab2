"""A service and its checkpoint to what is decided for it. A pure function: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.containers import blanks
from headfirst.decide.engines.base import AdapterNeeds, Computing, Engine, Start
from headfirst.decide.model import families
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.task import Task
from headfirst.decide.plan import presets, standby, trust, types
from headfirst.decide.plan.front import router
from headfirst.decide.plan.host import hardware, network
from headfirst.decide.plan.launching import Launching, engine_image
from headfirst.decide.plan.sizing import parallel, request_limit
from headfirst.decide.plan.sizing.fit import fit, memory_of
from headfirst.decide.plan.weights import layers, precision
from headfirst.decide.plan.weights.decide import adapters, decide

_ARM = (
    "Hosts with {gpu} are ARM (aarch64), on which nothing of this was run. The image must be published for "
    "arm64; bundles and images that are built here are for x86-64."
)
_NVLINK_DOMAIN = (
    "NVLink between hosts with {gpu} is not used: its IMEX channels are not set up. Ranks of several hosts "
    "use RDMA or sockets."
)


def plan(cluster: Cluster, service: Service, checkpoint: Checkpoint) -> types.PlannedService:
    """What is decided for the service, without advice. InputError for what cannot work."""
    settings = service.settings
    where = str(cluster.inventories[0])
    lora = adapters(
        settings,
        served_name=service.served_model_name,
        where=service.given.get("adapters"),
        known=service.adapters,
    )
    configs = {adapter.name: service.adapters.get(adapter.name) for adapter in lora}
    checkpoint = checkpoint.model_copy(update={"adapters": tuple(configs.values())})
    engine, note = engines.of_image(
        settings.engine,
        settings.engine_image,
        settings.engine_version,
        where=service.given.get("engine_version" if settings.engine_version else "engine"),
    )
    other_version = engines.without_tables(engine, settings.engine_image)
    if other_version:
        _refuse_presets(service, engine, other_version)
    where_arguments = service.given.get("engine_args")
    arguments = engine.check_arguments(settings.engine_args).require(where=where_arguments)
    gpu, machines = hardware.gpu(service, where), hardware.machines(service, where)
    dtype = precision.choose(
        checkpoint, gpu, engine, device=settings.engine_device, where=where, arguments=arguments
    )
    memory_form = precision.loaded(checkpoint, dtype, gpu, engine, arguments)
    loaded, loaded_as, computing = memory_form.checkpoint, memory_form.dtype, memory_form.computing
    memories = memory_of(loaded, gpu, engine, dtype=loaded_as) if gpu is not None else None
    rdma = network.rdma_between(service.replicas[0].hosts, gpus=settings.engine_device == "cuda")
    spread = parallel.Spread(
        loaded, machines, engine, arguments, loaded_as, rdma, settings.preset, memory=memories
    )
    shared = spread.choose(tensor=settings.tensor_parallel, pipeline=settings.pipeline_parallel, where=where)
    sizes = shared.candidate.layout
    task = _task(service, checkpoint, arguments)
    image = engine_image(service, engine)
    choice = presets.choose(
        presets.Situation(
            checkpoint=loaded,
            engine=engine,
            task=task,
            preset=settings.preset,
            parsers=presets.wants_parsers(settings.parsers, settings.preset),
            gpu=gpu,
            machines=machines,
            layout=sizes,
            layout_arguments=shared.candidate.arguments,
            dtype=loaded_as,
            user_arguments=tuple(settings.engine_args),
            version=other_version,
            image=image,
        )
    )
    arguments = engine.check_arguments(choice.arguments).require(where=where_arguments)
    sizes = engine.layout(sizes.tensor, sizes.pipeline, arguments)
    limit = request_limit.choose(engine, memories(sizes, arguments)) if memories else None
    if limit is not None:
        choice = choice.with_argument(limit)
        arguments = engine.check_arguments(choice.arguments).require(where=where_arguments)
    needs = engine.adapter_needs(configs, arguments) if lora else AdapterNeeds()
    if needs.problem:
        raise InputError(
            needs.problem, where=service.given.get("adapters"), hint="Leave it out, or change what it names."
        )
    for flag, value in needs.arguments.items():
        added = types.ChosenArgument(flag=flag, value=value, reason=needs.reason, source=needs.source)
        choice = choice.with_argument(added)
        arguments = engine.check_arguments(choice.arguments).require(where=where_arguments)
    served = checkpoint.converted if dtype.convert_to_bf16 else checkpoint
    start = Start(image, engine.cuda(image), gpu, machines.nodes, arguments)
    _refuse_unsupported(engine, served, task, start, settings.engine_env, where)
    trusted = trust.choose(settings, checkpoint, arguments, where=where)
    spans = layers.by_host(service, engine, checkpoint, sizes)
    fitted = fit(loaded, gpu, sizes, engine, dtype=loaded_as, arguments=arguments)
    weights = decide(cluster, service, checkpoint, fitted, sizes.world, spans, convert=dtype.convert_to_bf16)
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
    return types.PlannedService(
        name=service.name,
        model=checkpoint.id,
        precision=precision.title(checkpoint),
        model_described_by=f"{checkpoint.source}: {checkpoint.note}"
        if checkpoint.note
        else checkpoint.source,
        served_model_name=service.served_model_name,
        engine=engine.name,
        engine_version=engine.version,
        engine_cuda=engine.cuda(image) if settings.engine_device == "cuda" else "",
        device=settings.engine_device,
        task=task,
        chosen_arguments=list(choice.chosen),
        arguments_left_out=list(choice.left_out),
        adapters=lora,
        tensor_parallel=sizes.tensor,
        pipeline_parallel=sizes.pipeline,
        data_parallel=sizes.data,
        attention_data_parallel=sizes.attention_data,
        expert_parallel=sizes.expert,
        world_size=sizes.world,
        layout_reason=shared.reason,
        layouts_rejected=list(shared.rejected),
        convert_to_bf16=dtype.convert_to_bf16,
        convert_reason=dtype.reason,
        trust_remote_code=trusted.remote_code,
        trust_reason=trusted.reason,
        fit=fitted,
        weights=weights,
        cache_dir=settings.engine_cache_dir,
        readiness=_readiness(service, engine, task),
        drain_seconds=settings.drain_timeout,
        config_file=blanks.parsed(engine.config_file(api_key=blanks.api_key(service.name))),
        replicas=[launching.replica(replica) for replica in service.replicas],
        scheduled=[launching.scheduled(replica) for replica in service.replicas],
        standbys=standby.standbys(cluster, service, gpu, launch),
        routers=router.routers(cluster, service),
        notes=[
            text
            for text in (
                note,
                computing and _computing_note(engine, served, computing, loaded_as),
                _NO_TEMPLATE if task == "completion" and settings.task is None else "",
                gpu and gpu.host == "aarch64" and _ARM.format(gpu=gpu.name),
                gpu
                and gpu.name.startswith(("GB200", "GB300"))
                and machines.nodes > 1
                and _NVLINK_DOMAIN.format(gpu=gpu.name),
                _unread(lora),
                needs.note,
            )
            if text
        ],
    )


def _unread(listed: Sequence[types.Adapter]) -> str:
    """Which adapters were not read, why, and what that means."""
    unread = [adapter for adapter in listed if adapter.rank is None]
    if not unread:
        return ""
    text = (
        f"adapter_config.json of {', '.join(adapter.name for adapter in unread)} was not read: the rank is "
        "not known, and what the engine refuses is not checked."
    )
    if any(adapter.source == "path" for adapter in unread):
        text += " Folders are on the head: `deploy plan --probe` reads them there, as `deploy up` does."
    if any(adapter.source != "path" for adapter in unread):
        text += " The hub did not answer, or HF_HUB_OFFLINE forbids requests."
    return text


def _computing_note(engine: Engine, checkpoint: Checkpoint, computing: Computing, loaded_as: str) -> str:
    return (
        f"{engine.title} computes in {computing.dtype.upper()}, and the checkpoint is "
        f"{checkpoint.dtype.upper()}: {computing.reason}. Weights in memory are counted in "
        f"{loaded_as.upper()}."
    )


def _refuse_presets(service: Service, engine: Engine, version: str) -> None:
    """Raise for what would choose arguments of a version that has no tables here."""
    chooses = {"preset": service.settings.preset, "parsers": service.settings.parsers == "auto"}
    name = next((name for name, value in chooses.items() if value), None)
    if name is None:
        return
    supported = ", ".join(engines.versions(engine.name))
    raise InputError(
        f"{name}={getattr(service.settings, name)} chooses arguments of {engine.title} {supported}, and "
        f"engine_image={service.settings.engine_image} is of {version}.",
        where=service.given.get(name),
        hint=f"Remove {name} and set engine_args, or take an image of a supported version.",
    )


_NO_TEMPLATE = (
    "The checkpoint has no chat template: task=completion, with /v1/completions and without the chat page. "
    "engine_args=--chat-template with a file makes it a chat."
)


def _task(service: Service, checkpoint: Checkpoint, arguments: Mapping[str, Any]) -> Task:
    """What the service is for. InputError for a chat without a chat template."""
    task = service.settings.task or families.task(checkpoint)
    if arguments.get("chat_template"):
        return "chat" if task == "completion" and service.settings.task is None else task
    if task == "chat" and checkpoint.chat_template is False:
        raise InputError(
            f"task=chat, and {checkpoint.id} has no chat template: no engine answers its chats",
            where=service.given.get("task"),
            hint="Write task=completion, set engine_args=--chat-template, or serve its Instruct version.",
        )
    return task


def _readiness(service: Service, engine: Engine, task: Task) -> types.Readiness:
    readiness = engine.readiness(task)
    return types.Readiness(
        path=readiness.path,
        probe_path=readiness.probe_path,
        probe_body={"model": service.served_model_name, **readiness.probe_body},
        answer=list(readiness.answer),
        start_seconds=service.settings.ready_timeout,
        hang_seconds=service.settings.hang_timeout if readiness.generates else None,
        silence_seconds=service.settings.hang_timeout,
    )


def _refuse_unsupported(
    engine: Engine,
    checkpoint: Checkpoint,
    task: Task,
    start: Start,
    environment: Mapping[str, str],
    where: str,
) -> None:
    problems = [
        *engine.support_problems(checkpoint, start.gpu, task, start.values),
        *engine.length_problems(checkpoint, start.values, environment),
        *engine.start_problems(checkpoint, start),
    ]
    if problems:
        raise InputError(
            f"{engine.title} {engine.version} cannot serve {checkpoint.id}: {'; '.join(problems)}.",
            where=where,
            hint="Change what it names, choose another engine (engine=), or another model "
            "(`deploy models` lists what these GPUs can serve).",
        )
