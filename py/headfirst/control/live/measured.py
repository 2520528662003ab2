"""What the last start of a rank measured, read from the container's log."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import datetime

import docker
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line

from headfirst.common.container_state import container_state
from headfirst.common.errors import HeadfirstError
from headfirst.control.live.logs import Logged, stream_logs
from headfirst.control.live.ssh_access.transport import docker_over_ssh
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.diagnose.measured import Measured, of_log
from headfirst.decide.engines.base import Engine


def measured(access: HostAccess, container: str, engine: Engine, planned: Mapping[str, float]) -> Measured:
    """The figures and phases of the last start; none where the host, the container or its log is away."""
    try:
        with docker_over_ssh(access) as client:
            state = container_state(client.containers.get(container).attrs, where=access.host)
        since = datetime.fromisoformat(state.started_at)
        lines = stream_logs([Logged("rank 0", access, container)], since=since)
        with contextlib.closing(lines):
            read = (Line(datetime.fromisoformat(line.time).timestamp(), line.text) for line in lines)
            told = of_log(engine, planned, read, since.timestamp())
    except (HeadfirstError, docker.errors.NotFound, ValueError):
        return Measured()
    return told.model_copy(update={"started_at": state.started_at})
