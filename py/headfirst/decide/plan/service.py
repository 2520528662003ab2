"""A service and its checkpoint to what is decided for it. A pure function: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence

from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.containers import blanks
from headfirst.decide.engines.base import Computing, Engine
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.task import Task
from headfirst.decide.plan import (
    capabilities,
    contents,
    images,
    judgement,
    pool,
    rehearsal,
    standby,
    transfer,
    trust,
    types,
)
from headfirst.decide.plan.front import router
from headfirst.decide.plan.host import memory
from headfirst.decide.plan.launching import Launching
from headfirst.decide.plan.weights import layers, precision
from headfirst.decide.plan.weights.decide import adapters, decide, timed_draft


def plan(cluster: Cluster, service: Service, checkpoint: Checkpoint) -> types.PlannedService:
    """What is decided for the service, without advice. InputError for what cannot work."""
    settings = service.settings
    where = str(cluster.inventories[0])
    lora = adapters(service)
    configs = {adapter.name: service.adapters.get(adapter.name) for adapter in lora}
    known = {"adapters": tuple(configs.values()), "draft": service.draft}
    engine, note = engines.of_service(service)
    checkpoint = contents.with_packages(service, checkpoint).model_copy(update=known)
    images.refuse_other_engine(engine, settings.engine_image, service.given.get("engine_image"))
    if settings.engine_image_source == "build":
        images.recipe(service, engine)
    pools = [pool.decide(service.of_role(role), checkpoint, engine, configs, where) for role in service.roles]
    *before, main = pools
    moved = transfer.plan(service, engine, checkpoint, *pools) if before else None
    classless = main.served.model_copy(update={"external_class": False})
    external = engine.support_problems(classless, main.gpu, main.task, main.values)
    trusted = trust.choose(settings, checkpoint, main.values, where=where)
    weights = decide(
        cluster,
        service,
        checkpoint,
        max((part.sized.fit for part in pools), key=lambda fit: fit.weight_bytes_per_rank),
        memory.of_hosts([(part.service, part.sized.host_memory) for part in pools]),
        max(part.layout.world for part in pools),
        layers.joined([layers.by_host(part.service, engine, checkpoint, part.layout) for part in pools]),
        convert=main.precision.convert_to_bf16,
    )
    draft = timed_draft(cluster, service, main.drafts.model)
    launchings = [
        Launching(
            service=part.service,
            runtime=cluster.settings.container_runtime,
            engine=engine,
            checkpoint=checkpoint,
            layout=part.layout,
            task=part.task,
            model_dir=weights.directory,
            adapters={adapter.name: adapter.directory for adapter in lora},
            draft_dir=draft.directory if draft else None,
            remote_code=trusted.remote_code,
            arguments=part.choice.arguments,
            among=service.hosts if moved else None,
            moved=moved,
            shared_bytes=part.sized.host_memory.shared_bytes if part.sized.host_memory else 0,
        )
        for part in pools
    ]
    launched = [(launching, replica) for launching in launchings for replica in launching.service.replicas]
    outside_v1 = engine.request_dialect(main.values).paths_outside_v1(main.task)
    replicas = [launching.replica(replica) for launching, replica in launched]
    programs = sorted({program for launching in launchings for program in launching.programs})
    contents.refuse_image(service, engine, main.image, programs)
    routers = router.routers(cluster, service, replicas)
    return types.PlannedService(
        **dict(main.sized),
        name=service.name,
        model=checkpoint.id,
        precision=precision.title(checkpoint),
        model_described_by=checkpoint.described_by,
        served_model_name=service.served_model_name,
        engine=engine.name,
        engine_version=engine.version,
        engine_described_by=engine.described_by,
        engine_cuda=engine.cuda(main.image) if settings.engine_device == "cuda" else "",
        device=settings.engine_device,
        image_programs=programs,
        task=main.task,
        prefill=before[0].sized if before else None,
        transfer=moved,
        adapters=lora,
        draft_model=draft,
        convert_to_bf16=main.precision.convert_to_bf16,
        convert_reason=main.precision.reason,
        trust_remote_code=trusted.remote_code,
        trust_reason=trusted.reason,
        weights=weights,
        cache_dir=settings.own_cache_dir,
        readiness=_readiness(service, engine, main.task),
        drain_seconds=settings.drain_timeout,
        config_file=_config_file(service, engine),
        api_key_file=settings.api_key_file,
        capabilities=capabilities.of(engine, pools, replicas),
        replicas=replicas,
        rehearsal=rehearsal.plan(launched, main.served, main.values, weights),
        scheduled=[launching.scheduled(replica) for launching, replica in launched],
        standbys=[
            waiting
            for launching, part in zip(launchings, pools, strict=True)
            for waiting in standby.standbys(cluster, part.gpu, launching)
        ],
        paths_outside_v1=outside_v1,
        routers=routers,
        warnings=_once(
            *(text for part in pools for text in judgement.warnings(part)),
            *(text for launching in launchings for text in launching.replaced),
        ),
        notes=_once(
            note,
            *(
                _computing_note(engine, part.served, part.loaded.computing, part.loaded.dtype)
                for part in pools
                if part.loaded.computing
            ),
            _NO_TEMPLATE if main.task == "completion" and settings.task is None else "",
            contents.own_image_note(engine, main.image, programs),
            _unread(lora),
            main.needs.note,
            *main.drafts.notes,
            contents.packages_note(service, engine, checkpoint) if external else "",
            contents.unknown_flags(engine, settings.engine_args),
            contents.unmounted_note(settings.engine_args, replicas[0].nodes[0].container.volumes),
            *(text for part in pools for text in part.host_notes),
            _ONE_OF_A_PART if before and 1 in (len(part.service.replicas) for part in pools) else "",
            _BEHIND_PROXY if settings.api_key_file and cluster.has_proxy else "",
            _BESIDE_ROUTERS.format(paths=" and ".join(outside_v1))
            if outside_v1 and routers and not cluster.has_proxy
            else "",
        ),
    )


def _once(*texts: str) -> list[str]:
    """Each text once, without empty ones."""
    return list(dict.fromkeys(filter(None, texts)))


def _config_file(service: Service, engine: Engine) -> dict[str, blanks.Text]:
    """The file with the keys, each value as JSON."""
    keys = engine.config_file(api_key=blanks.api_key(service.name), admin_key=blanks.mark(blanks.ADMIN_KEY))
    return {name: blanks.parse_json(value) for name, value in keys.items()}


def _unread(listed: Sequence[types.Adapter]) -> str:
    """Which adapters were not read, why, and what that means."""
    unread = [adapter for adapter in listed if adapter.rank is None]
    if not unread:
        return ""
    text = (
        f"adapter_config.json of {', '.join(adapter.name for adapter in unread)} was not read: the rank is "
        "not known, and the plan does not check whether the engine accepts it."
    )
    if any(not adapter.from_hub for adapter in unread):
        text += " Folders are on the head: `deploy plan --probe` reads them there, as `deploy up` does."
    if any(adapter.from_hub for adapter in unread):
        text += " The hub did not answer, or HF_HUB_OFFLINE forbids requests."
    return text


def _computing_note(engine: Engine, checkpoint: Checkpoint, computing: Computing, loaded_as: str) -> str:
    return (
        f"{engine.title} computes in {computing.dtype.upper()}, and the checkpoint is "
        f"{checkpoint.dtype.upper()}: {computing.reason}. Weights in memory are counted in "
        f"{loaded_as.upper()}."
    )


_BESIDE_ROUTERS = (
    "Routers forward only /v1/…. Send requests for {paths} to the port of a replica or, with proxy=true, to "
    "the proxy, which spreads them over the replicas."
)
_ONE_OF_A_PART = (
    "A part has only one replica: the service does not answer while this replica restarts for a change, also "
    "for a change to or from `replicas`."
)
_BEHIND_PROXY = (
    "The proxy accepts only keys of `deploy keys`. The key of api_key_file is for requests between hosts; "
    "clients of the proxy need another key."
)
_NO_TEMPLATE = (
    "The checkpoint has no chat template: task=completion, with /v1/completions and without the chat page. "
    "For chats, set engine_args=--chat-template with a file."
)


def _readiness(service: Service, engine: Engine, task: Task) -> types.Readiness:
    readiness = engine.readiness(task)
    alone = engine.disaggregation.probe_body if engine.disaggregation and service.roles[0] else {}
    return types.Readiness(
        path=readiness.path,
        probe_path=readiness.probe_path,
        probe_body={"model": service.served_model_name, **readiness.probe_body, **alone},
        answer=list(readiness.answer),
        start_seconds=service.settings.ready_timeout,
        hang_seconds=service.settings.hang_timeout if readiness.generates else None,
        silence_seconds=service.settings.hang_timeout,
    )
