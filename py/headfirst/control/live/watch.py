"""Replicas and their ranks, read again and again over connections that stay open, for `deploy top`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import docker
import httpx
import paramiko
from pydantic import TypeAdapter

from headfirst.common.container_state import container_state
from headfirst.common.errors import HeadfirstError, NotReadyError
from headfirst.common.untrusted import UntrustedError, integer, json_object
from headfirst.control.live.gpus import GpuUse, gpus, of_rank
from headfirst.control.live.load import EngineLoad, Meter
from headfirst.control.live.ssh_access.ssh import AT_ONCE, HostConnection, ssh
from headfirst.control.live.ssh_access.transport import docker_client
from headfirst.control.live.ssh_access.tunnel import local_client, no_answer_reason, tunnel
from headfirst.control.live.status import ReplicaTarget
from headfirst.control.live.status_types import Supervision
from headfirst.control.live.supervision import of_container, unknown
from headfirst.decide.cluster.login import HostAccess

NS = 10**9
Connection = TypeVar("Connection")


@dataclass(frozen=True)
class ReplicaRow:
    """One replica. `load` is None before the second reading, and while `problem` states why there is none."""

    service: str
    index: int
    load: EngineLoad | None = None
    problem: str | None = None
    role: str | None = None  # prefill, or decode


@dataclass(frozen=True)
class RankRow:
    """One rank's container. `cpus` are cores in use since the last reading; `state` as in ContainerStatus.

    `restarts` are those of the supervisor, which starts all ranks of a replica together, None where they
    cannot be read; without a supervisor they are Docker's.
    """

    service: str
    index: int
    rank: int
    host: str
    state: str
    restarts: int | None = None
    started_at: str = ""
    cpus: float | None = None
    memory_bytes: int | None = None
    problem: str | None = None
    gpus: Sequence[GpuUse] = ()  # of the rank


@dataclass(frozen=True)
class Snapshot:
    """Everything at one moment."""

    replicas: tuple[ReplicaRow, ...]
    ranks: tuple[RankRow, ...]


class ReplicaWatch:
    """Reads these replicas. A host that does not answer is a row with its problem, and is tried again."""

    def __init__(self, replicas: Sequence[ReplicaTarget]) -> None:
        self._replicas = [_ReplicaReader(replica) for replica in replicas]
        self._ranks = [
            _RankReader(replica, rank, access)
            for replica in replicas
            for rank, access in enumerate(replica.ranks)
        ]
        self._pool = ThreadPoolExecutor(max_workers=min(len(self._replicas) + len(self._ranks), AT_ONCE))

    def read(self) -> Snapshot:
        """One reading of all of them, at the same time."""
        replicas = [self._pool.submit(replica.look) for replica in self._replicas]
        ranks = [self._pool.submit(rank.look) for rank in self._ranks]
        rows = [future.result() for future in ranks]
        counts = {
            (row.service, row.index): rank.supervision.restarts
            for row, rank in zip(rows, self._ranks, strict=True)
            if rank.supervision is not None
        }
        return Snapshot(
            tuple(future.result() for future in replicas),
            tuple(replace(row, restarts=counts.get((row.service, row.index), row.restarts)) for row in rows),
        )

    def close(self) -> None:
        """Close every connection."""
        self._pool.shutdown(wait=True)
        for replica in self._replicas:
            replica.close()
        for rank in self._ranks:
            rank.close()


def lines(read: Callable[[], Snapshot], interval_s: float) -> Iterator[str]:
    """A reading each interval, without an end, as JSON."""
    document = TypeAdapter(Snapshot)
    while True:
        begun = time.monotonic()
        yield document.dump_json(read(), ensure_ascii=True).decode()
        time.sleep(max(0.0, interval_s - (time.monotonic() - begun)))


class _LazyConnection(Generic[Connection]):
    """What `connect` opens, until it fails; then the next use opens it again."""

    def __init__(self, connect: Callable[[ExitStack], Connection]) -> None:
        self._connect = connect
        self._stack = ExitStack()
        self._open: Connection | None = None

    def use(self) -> Connection:
        if self._open is None:
            self._open = self._connect(self._stack)
        return self._open

    def close(self) -> None:
        self._open = None
        with contextlib.suppress(HeadfirstError, OSError):
            self._stack.close()


class _ReplicaReader:
    def __init__(self, target: ReplicaTarget) -> None:
        self._target = target
        self._meter = _LazyConnection(self._connect)

    def _connect(self, stack: ExitStack) -> Meter:
        target = self._target
        if target.metrics is None:
            raise NotReadyError(f"{target.service} has no metrics")
        local = stack.enter_context(tunnel(target.ranks[0], target.engine_url))
        client = local_client(local, target.api_key)
        return Meter(stack.enter_context(client), target.metrics)

    def look(self) -> ReplicaRow:
        row = ReplicaRow(self._target.service, self._target.index, role=self._target.role)
        try:
            meter = self._meter.use()
            load = meter.read()
        except (HeadfirstError, httpx.HTTPError) as error:
            self.close()
            return replace(row, problem=no_answer_reason(error))
        if meter.age_s is None:
            return replace(row, problem="the engine gives no figures")
        return replace(row, load=load)

    def close(self) -> None:
        self._meter.close()


class _RankReader:
    def __init__(self, target: ReplicaTarget, rank: int, access: HostAccess) -> None:
        self._target = target
        self._rank = rank
        self._access = access
        self._connections = _LazyConnection(self._connect)
        self.supervision: Supervision | None = None
        """What the supervisor of the replica reports, which rank 0's host has; None where there is none."""
        self._before: tuple[float, int] | None = None  # when, and the nanoseconds of processors used by then

    def _connect(self, stack: ExitStack) -> tuple[HostConnection, docker.DockerClient]:
        connection = stack.enter_context(ssh(self._access))
        return connection, stack.enter_context(docker_client(self._access, connection))

    def look(self) -> RankRow:
        try:
            connection, client = self._connections.use()
            if self._rank == 0:
                self.supervision = of_container(connection, self._target.container)
            return self._row(**{**self._gpus(connection), **self._container(client)})
        except HeadfirstError as error:
            return self._lost(error)
        except (docker.errors.APIError, paramiko.SSHException, OSError):
            return self._lost(NotReadyError("the connection to the Docker Engine was interrupted"))

    def _gpus(self, connection: HostConnection) -> dict[str, Any]:
        try:
            return {"gpus": of_rank(gpus(connection), self._target.devices_of(self._rank))}
        except (NotReadyError, UntrustedError) as error:
            return {"problem": error.what}

    def _lost(self, error: HeadfirstError) -> RankRow:
        self.close()
        if self._rank == 0:
            self.supervision = unknown(error)
        return self._row(state="unreachable", problem=error.what)

    def _row(self, **more: Any) -> RankRow:
        target = self._target
        return RankRow(target.service, target.index, self._rank, self._access.host, **more)

    def _container(self, client: docker.DockerClient) -> dict[str, Any]:
        try:
            attrs = client.containers.get(self._target.container).attrs
            used = client.api.stats(self._target.container, stream=False, one_shot=True)
        except docker.errors.NotFound:
            self._before = None
            return {"state": "missing"}
        state = container_state(attrs)
        row = {"state": state.status, "restarts": state.restarts, "started_at": state.started_at}
        try:
            return row | (self._usage(used) if state.running else {})
        except (KeyError, TypeError):
            raise UntrustedError(
                "the Docker Engine's figures of a container are not those of its API"
            ) from None

    def _usage(self, used: Any) -> dict[str, Any]:
        used = json_object(used, what="the use of a container")
        total = integer(used["cpu_stats"]["cpu_usage"]["total_usage"], what="the use of processors")
        now, before = time.monotonic(), self._before
        self._before = (now, total)
        cpus = None if before is None else max(total - before[1], 0) / NS / max(now - before[0], 1e-3)
        memory = used["memory_stats"].get("usage")
        if memory is None:
            return {"cpus": cpus}
        # As `docker stats` counts it: without the pages of files, which the kernel gives back.
        files = used["memory_stats"].get("stats", {}).get("inactive_file", 0)
        used_bytes = integer(memory, what="the use of memory") - integer(files, what="pages of files")
        return {"cpus": cpus, "memory_bytes": max(used_bytes, 0)}

    def close(self) -> None:
        self._before = None
        self._connections.close()
