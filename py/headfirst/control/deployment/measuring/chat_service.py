"""The service that a measurement asks: which one, what runs there, and how it is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headfirst.common.errors import InputError
from headfirst.control.bench.result import BenchSubject, PrefillSide
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.verbs.diagnose import nodes_of
from headfirst.control.deployment.verbs.service import is_routed
from headfirst.control.deployment.verbs.smoke import api_target
from headfirst.control.evalscope import environment
from headfirst.control.smoke.api import ServiceTarget
from headfirst.decide.cluster.types import Cluster, Replica, Service
from headfirst.decide.engines import access
from headfirst.decide.engines.base import ReadinessProbe
from headfirst.decide.plan import types as plan


@dataclass(frozen=True)
class ChatService:
    """A service, how it is asked, and the Python of the program that asks it."""

    cluster: Cluster
    subject: BenchSubject
    target: ServiceTarget
    readiness: ReadinessProbe
    python: Path


def chat_service(options: RunOptions, note: Callable[[str], None], hint: str) -> ChatService:
    """What `options.service` names. InputError with `hint` where it answers no chats."""
    prepared = prepare(options.inventories, options.extra_vars, probe=True, engine_args=options.engine_args)
    cluster = prepared.cluster
    service, replica = cluster.chosen(options.service)[0]
    planned = prepared.plan.service(service.name)
    if planned.task not in ("chat", "vision"):
        raise InputError(f"{service} is a service of {planned.task}", where="--service", hint=hint)
    python = environment.python(note)
    subject = subject_of(cluster, service, replica, planned, is_routed=is_routed(service, options.service))
    return ChatService(cluster, subject, *api_target(service, planned), python)


def subject_of(
    cluster: Cluster, service: Service, replica: Replica, planned: plan.PlannedService, *, is_routed: bool
) -> BenchSubject:
    """What runs: the image and the arguments are those of the replicas' containers, not of the plan."""
    measured = service.replicas if is_routed else (replica,)
    prefill = [member for member in measured if member.role == "prefill"] if is_routed else []
    image, arguments = _container(cluster, service, [member for member in measured if member not in prefill])
    return BenchSubject(
        cluster=cluster.name,
        service=str(service),
        replicas=[member.index for member in measured],
        is_routed=is_routed,
        model=planned.model,
        engine=planned.engine,
        engine_version=planned.engine_version,
        image=image,
        device=planned.device,
        hosts=_hosts(measured),
        tensor_parallel=planned.tensor_parallel,
        pipeline_parallel=planned.pipeline_parallel,
        data_parallel=planned.data_parallel,
        arguments=arguments,
        prefill=_side(cluster, service, prefill, planned.prefill) if prefill and planned.prefill else None,
    )


def _side(cluster: Cluster, service: Service, replicas: Sequence[Replica], sized: plan.Sized) -> PrefillSide:
    return PrefillSide(
        replicas=[member.index for member in replicas],
        hosts=_hosts(replicas),
        tensor_parallel=sized.tensor_parallel,
        pipeline_parallel=sized.pipeline_parallel,
        data_parallel=sized.data_parallel,
        arguments=_container(cluster, service, replicas)[1],
    )


def _container(cluster: Cluster, service: Service, replicas: Sequence[Replica]) -> tuple[str, list[str]]:
    """Image and arguments of rank 0 of the first replica, empty where it has no container."""
    nodes, _ = nodes_of(cluster, service, replicas[0])
    container = nodes[0].container
    return (container.image, list(access.as_planned(container.argv))) if container else ("", [])


def _hosts(replicas: Sequence[Replica]) -> list[str]:
    return [host.name for member in replicas for host in member.hosts]
