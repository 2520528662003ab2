"""What runs right now: the ranks' containers, the engine's answer, the chat page; hosts asked in parallel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import docker
import httpx
from ansible_collections.headfirst.serving.plugins.module_utils import readiness

from headfirst.common import container_names as names
from headfirst.common.container_state import container_state
from headfirst.common.errors import NotReadyError
from headfirst.common.metrics import Metrics
from headfirst.common.untrusted import UntrustedError, json_document, line
from headfirst.control.live.gpus import gpus, of_rank
from headfirst.control.live.load import EngineLoad, Meter
from headfirst.control.live.ssh_access.ssh import AT_ONCE, ssh
from headfirst.control.live.ssh_access.transport import docker_client
from headfirst.control.live.ssh_access.tunnel import ask, forward, local_client, no_answer_reason, tunnel
from headfirst.control.live.status_types import (
    ClusterStatus,
    EngineStatus,
    RankStatus,
    ReplicaStatus,
    Supervision,
    WebuiStatus,
)
from headfirst.control.live.supervision import of_container, unknown
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.engines import access
from headfirst.decide.engines.base import ReadinessProbe

# Between two readings of an engine's counters.
RATE_S = 1.0


class WebuiTarget(NamedTuple):
    """Where the chat page is: its host, and its address as that host sees it."""

    access: HostAccess
    url: str
    container: str = names.WEBUI


@dataclass(frozen=True)
class ReplicaTarget:
    """One replica: its ranks' hosts, the head first, and rank 0's address as the head sees it."""

    service: str
    index: int
    ranks: Sequence[HostAccess]
    engine_url: str
    readiness: ReadinessProbe
    api_key: str | None = None
    container: str = names.ENGINE
    metrics: Metrics | None = None  # None: its load is not asked for
    role: str | None = None  # where prefill and decode are divided
    devices: Sequence[Sequence[str] | None] = ()  # GPUs of each rank, by index or UUID; None, or none: all

    def devices_of(self, rank: int) -> Sequence[str] | None:
        """The GPUs of a rank on its host; None: all."""
        return self.devices[rank] if self.devices else None


def cluster_status(replicas: Sequence[ReplicaTarget], webui: WebuiTarget | None = None) -> ClusterStatus:
    """Ask all hosts. A host that does not answer is a row with its problem, not an exception."""
    count = sum(len(replica.ranks) + 2 for replica in replicas) + 1
    with ThreadPoolExecutor(max_workers=min(count, AT_ONCE)) as pool:
        futures = [
            (
                [pool.submit(_rank, rank, access, replica) for rank, access in enumerate(replica.ranks)],
                pool.submit(_engine, replica),
                pool.submit(_supervision, replica),
            )
            for replica in replicas
        ]
        page_future = pool.submit(_webui, webui) if webui else None
        statuses = [
            _replica(replica, [row.result() for row in rows], engine.result(), keeper.result())
            for replica, (rows, engine, keeper) in zip(replicas, futures, strict=True)
        ]
        page = page_future.result() if page_future else None
    ready = all(status.ready for status in statuses) and (page is None or page.ready)
    return ClusterStatus(ready=ready, replicas=statuses, webui=page)


def _replica(
    target: ReplicaTarget, rows: list[RankStatus], engine: EngineStatus, keeper: Supervision | None
) -> ReplicaStatus:
    running = all(row.state == "running" for row in rows)
    if keeper:
        rows = [row.model_copy(update={"restarts": keeper.restarts}) for row in rows]
    return ReplicaStatus(
        service=target.service,
        index=target.index,
        role=target.role,
        ready=running and engine.ready,
        ranks=rows,
        engine=engine,
        supervisor=keeper,
    )


def _supervision(target: ReplicaTarget) -> Supervision | None:
    try:
        with ssh(target.ranks[0]) as connection:
            return of_container(connection, target.container)
    except (NotReadyError, UntrustedError) as error:
        return unknown(error)


def _rank(rank: int, access: HostAccess, target: ReplicaTarget) -> RankStatus:
    try:
        with ssh(access) as connection, docker_client(access, connection) as client:
            fields = container_fields(client, access.host, target.container)
            try:
                used = of_rank(gpus(connection), target.devices_of(rank))
            except (NotReadyError, UntrustedError) as error:
                return RankStatus(rank=rank, **{**fields, "problem": fields.get("problem") or error.what})
            return RankStatus(rank=rank, gpus=used, **fields)
    except (NotReadyError, UntrustedError) as error:
        return RankStatus(rank=rank, host=access.host, state="unreachable", problem=error.what)


def _engine(target: ReplicaTarget) -> EngineStatus:
    url, probe = target.engine_url, target.readiness
    try:
        with tunnel(target.ranks[0], url) as local, local_client(local, target.api_key) as client:
            meter = Meter(client, target.metrics) if target.metrics else None
            if meter:
                meter.read()
            status, _ = ask(client, "GET", probe.path)
            if status != 200:
                problem = f"{probe.path} answers {status}: it is starting, or it hangs"
                return EngineStatus(url=url, ready=False, problem=problem)
            status, body = ask(client, "GET", "/v1/models")
            if status != 200:
                return EngineStatus(url=url, ready=False, problem=f"/v1/models answers {status}")
            models = _models(body)
            wrong = None if probe.generates else _probe(client, probe, models)
            load = _load(meter) if meter and wrong is None else None
            return EngineStatus(url=url, ready=wrong is None, models=models, problem=wrong, load=load)
    except (NotReadyError, UntrustedError, httpx.HTTPError) as error:
        return EngineStatus(url=url, ready=False, problem=no_answer_reason(error))


def _load(meter: Meter) -> EngineLoad | None:
    if (age := meter.age_s) is None:
        return None
    time.sleep(max(0.0, RATE_S - age))
    return meter.read()


def _probe(client: httpx.Client, probe: ReadinessProbe, models: list[str]) -> str | None:
    """What is wrong with the answer to the probe; None where the model computed."""

    def post(path: str, body: dict[str, Any] | None) -> tuple[int, str, str]:
        status, answer = ask(client, "POST", path, body)
        return status, answer.decode(errors="replace"), f"HTTP {status}"

    computed, words = readiness.computes(post, vars(probe), models[0] if models else "")
    return None if computed else words


def _webui(target: WebuiTarget) -> WebuiStatus:
    access, url, container = target
    try:
        with ssh(access) as connection, docker_client(access, connection) as client:
            row = container_fields(client, access.host, container)
            if row["state"] != "running":
                return WebuiStatus(url=url, ready=False, **row)
            try:
                with forward(connection, url) as local, local_client(local) as http:
                    status, _ = ask(http, "GET", "/ready")
            except httpx.HTTPError as error:
                return WebuiStatus(url=url, ready=False, **{**row, "problem": no_answer_reason(error)})
            if status != 200:
                row["problem"] = f"/ready answers {status}"
            return WebuiStatus(url=url, ready=status == 200, **row)
    except (NotReadyError, UntrustedError) as error:
        return WebuiStatus(url=url, ready=False, host=access.host, state="unreachable", problem=error.what)


def _models(body: bytes) -> list[str]:
    listed = json_document(body, what="the list of models")
    try:
        return [line(model["id"], what="the name of a model") for model in listed["data"]]
    except (KeyError, TypeError):
        raise UntrustedError("the list of models does not match the API") from None


def container_fields(client: docker.DockerClient, host: str, name: str) -> dict[str, Any]:
    """Fields of a ContainerStatus, from the engine's own description of the container."""
    try:
        state = container_state(client.containers.get(name).attrs, where=host)
    except docker.errors.NotFound:
        return {"host": host, "state": "missing"}
    return {
        "host": host,
        "state": state.status,
        "health": state.health,
        "restarts": state.restarts,
        "exit_code": None if state.status in ("running", "paused", "restarting") else state.exit_code,
        "problem": "out of memory" if state.oom_killed else state.error or None,
        "image": state.image,
        "image_id": state.image_id,
        "started_at": state.started_at,
        "argv": [*access.as_planned(state.argv)],
    }
