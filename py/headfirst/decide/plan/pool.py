"""Replicas that are alike, and what is decided for each of them: layout, arguments, memory. A pure function.

A service is one pool, or two where prefill and decode are divided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headfirst.common.errors import InputError
from headfirst.decide.cluster.types import Service
from headfirst.decide.engines.base import Adapters, ArgumentNeeds, Engine, EngineStart, Values
from headfirst.decide.engines.drafts import as_computed
from headfirst.decide.engines.layout import Layout
from headfirst.decide.hardware.gpus import Gpu
from headfirst.decide.model import families
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.task import Task
from headfirst.decide.plan import contents, drafting, presets, types
from headfirst.decide.plan.drafting import Drafts
from headfirst.decide.plan.host import hardware, memory, network
from headfirst.decide.plan.launching import engine_image
from headfirst.decide.plan.presets import ArgumentChoice
from headfirst.decide.plan.sizing import parallel
from headfirst.decide.plan.sizing.fit import fit, memory_of, request_limit
from headfirst.decide.plan.weights import precision
from headfirst.decide.plan.weights.precision import Loaded, Precision


@dataclass(frozen=True)
class Pool:
    """What is decided for replicas that are alike; `service` has these replicas and their settings only."""

    service: Service
    image: str
    gpu: Gpu | None
    nodes: int  # of each replica
    precision: Precision
    served: Checkpoint
    loaded: Loaded
    task: Task
    layout: Layout
    choice: ArgumentChoice
    values: Values  # of all arguments
    needs: ArgumentNeeds
    drafts: Drafts
    host_notes: Sequence[str]  # on what its ranks keep in the hosts' memory
    sized: types.Sized


def decide(service: Service, checkpoint: Checkpoint, engine: Engine, adapters: Adapters, where: str) -> Pool:
    """InputError for what cannot work."""
    settings = service.settings
    side = engine.disaggregation.values(service.roles[0]) if engine.disaggregation else {}

    def values_of(words: Sequence[str]) -> Values:
        return {**engine.check_arguments(words).require(where=service.given.get("engine_args")), **side}

    arguments = values_of(settings.engine_args)
    gpu, machines = hardware.gpu(service, where), hardware.machines(service, where)
    drafts = drafting.choose(service, checkpoint, engine, arguments)
    arguments = values_of([*drafts.words, *settings.engine_args])
    dtype = precision.choose(
        checkpoint, gpu, engine, device=settings.engine_device, where=where, arguments=arguments
    )
    loaded = precision.loaded(checkpoint, dtype, gpu, engine, arguments)
    loaded = replace(loaded, checkpoint=as_computed(loaded.checkpoint))
    memories = memory_of(loaded.checkpoint, gpu, engine, dtype=loaded.dtype) if gpu is not None else None
    rdma = network.rdma_between(service.replicas[0].hosts, gpus=settings.engine_device == "cuda")
    spread = parallel.LayoutChooser(
        loaded.checkpoint, machines, engine, arguments, loaded.dtype, rdma, settings.preset, memory=memories
    )
    task = _task(service, checkpoint, arguments)
    drafting.refuse_task(service, task)
    image = engine_image(service, engine)
    served = checkpoint.converted if dtype.convert_to_bf16 else checkpoint

    def refuse_unsupported(arguments: Values) -> None:
        start = EngineStart(image, engine.cuda(image), gpu, machines.nodes, arguments)
        _refuse_unsupported(engine, served, task, start, settings.engine_env, where)

    try:
        shared = spread.choose(
            tensor=settings.tensor_parallel, pipeline=settings.pipeline_parallel, where=where
        )
    except InputError:
        refuse_unsupported(arguments)  # no size helps where the engine lacks the model
        raise
    sizes = shared.candidate.layout
    choice = presets.choose(
        presets.Situation(
            checkpoint=loaded.checkpoint,
            engine=engine,
            task=task,
            preset=settings.preset,
            parsers=settings.parsers != "none",
            by_default=settings.parsers is None and settings.preset is None,
            gpu=gpu,
            machines=machines,
            layout=sizes,
            layout_arguments=shared.candidate.arguments,
            draft_arguments=tuple(drafts.chosen),
            dtype=loaded.dtype,
            user_arguments=tuple(settings.engine_args),
            image=image,
        )
    )
    arguments = values_of(choice.arguments)
    sizes = engine.layout(sizes.tensor, sizes.pipeline, arguments)
    limit = request_limit(engine, memories(sizes, arguments)) if memories else None
    if limit is not None:
        choice = choice.with_argument(limit)
        arguments = values_of(choice.arguments)
    needs = engine.adapter_needs(adapters, arguments) if adapters else ArgumentNeeds()
    for added in types.ChosenArgument.each(needs.arguments, needs.reason, needs.source):
        choice = choice.with_argument(added)
        arguments = values_of(choice.arguments)
    refuse_unsupported(arguments)
    room = fit(loaded.checkpoint, gpu, sizes, engine, dtype=loaded.dtype, arguments=arguments)
    host_memory = memory.kept(service, engine, loaded.checkpoint, sizes, machines.nodes, arguments, room)
    sized = types.Sized(
        tensor_parallel=sizes.tensor,
        pipeline_parallel=sizes.pipeline,
        data_parallel=sizes.data,
        attention_data_parallel=sizes.attention_data,
        expert_parallel=sizes.expert,
        world_size=sizes.world,
        layout_reason=shared.reason,
        layouts_rejected=list(shared.rejected),
        chosen_arguments=list(choice.chosen),
        arguments_left_out=list(choice.left_out),
        fit=room,
        host_memory=memory.plan(service, engine, host_memory, ranks=sizes.world // machines.nodes),
    )
    return Pool(
        service=service,
        image=image,
        gpu=gpu,
        nodes=machines.nodes,
        precision=dtype,
        served=served,
        loaded=loaded,
        task=task,
        layout=sizes,
        choice=choice,
        values=arguments,
        needs=needs,
        drafts=drafts,
        host_notes=host_memory.notes,
        sized=sized,
    )


def _task(service: Service, checkpoint: Checkpoint, arguments: Values) -> Task:
    """What the service is for. InputError for a chat without a chat template."""
    task = service.settings.task or families.task(checkpoint)
    if arguments.get("chat_template"):
        return "chat" if task == "completion" and service.settings.task is None else task
    if task == "chat" and checkpoint.chat_template is False:
        raise InputError(
            f"task=chat, but {checkpoint.id} has no chat template: no engine can answer chats with it",
            where=service.given.get("task"),
            hint="Write task=completion, set engine_args=--chat-template, or serve its Instruct version.",
        )
    return task


def _refuse_unsupported(
    engine: Engine,
    checkpoint: Checkpoint,
    task: Task,
    start: EngineStart,
    environment: Mapping[str, str],
    where: str,
) -> None:
    problems = [
        *contents.other_files(start.values),
        *engine.support_problems(checkpoint, start.gpu, task, start.values),
        *engine.length_problems(checkpoint, start.values, environment),
        *engine.start_problems(checkpoint, start),
    ]
    if problems:
        raise InputError(
            f"{engine.title} {engine.version} cannot serve {checkpoint.id}: {'; '.join(problems)}.",
            where=where,
            hint="Change what the message names, or choose another engine (engine=) or model "
            "(`deploy models` lists what these GPUs can serve).",
        )
