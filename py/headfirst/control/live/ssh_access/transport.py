"""The Docker Engine API of a host, over SSH: `docker system dial-stdio` there, the docker SDK here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeAlias

import docker
import paramiko
import requests
from docker.transport.basehttpadapter import BaseHTTPAdapter
from docker.transport.sshconn import SSHConnection, SSHConnectionPool

from headfirst.common.errors import NotReadyError
from headfirst.control.live.ssh_access import explain
from headfirst.control.live.ssh_access.local import LocalConnection
from headfirst.control.live.ssh_access.privileged import Privileged, privileged
from headfirst.control.live.ssh_access.ssh import HostConnection, run_privileged, ssh, transport_of
from headfirst.decide.cluster.login import HostAccess

# The SDK reports by this address that its answers come over an SSH channel.
_BASE_URL = "http+docker://ssh"
TIMEOUT_S = 30
_Transport: TypeAlias = paramiko.Transport | LocalConnection


class NoEngineError(NotReadyError):
    """The host answers, and no Docker Engine answers there."""


@contextlib.contextmanager
def docker_over_ssh(access: HostAccess) -> Iterator[docker.DockerClient]:
    """A client of the host's Docker Engine; the connection is closed at the end.

    Raises NotReadyError when the host does not answer, sudo asks for a password, or no engine runs there.
    """
    with ssh(access) as connection, docker_client(access, connection) as client:
        yield client


@contextlib.contextmanager
def docker_client(access: HostAccess, connection: HostConnection) -> Iterator[docker.DockerClient]:
    """As docker_over_ssh, over a connection that is open already and stays open."""
    version = _engine_version(access, connection)
    # A placeholder: the SDK would make an SSH connection of its own, with neither our key nor sudo.
    client = docker.DockerClient(base_url="http://ssh:1", version=version, timeout=TIMEOUT_S)
    dial = privileged(access, "docker", "system", "dial-stdio")
    transport = connection if isinstance(connection, LocalConnection) else transport_of(connection)
    client.api.mount(_BASE_URL, _Adapter(transport, dial))
    client.api.base_url = _BASE_URL
    try:
        yield client
    except requests.exceptions.ConnectionError as error:
        raise NotReadyError(
            "the connection to the Docker Engine was interrupted",
            where=access.host,
            hint=f"Try: {access.ssh_command(*_by_hand(access), 'docker', 'ps')}",
        ) from error
    finally:
        client.close()


def _by_hand(access: HostAccess) -> list[str]:
    return [access.become.command] if access.become else []


def _engine_version(access: HostAccess, connection: HostConnection) -> str:
    """The engine's API version; a command reports why, where an engine cannot be reached."""
    answer = run_privileged(access, connection, "docker", "version", "--format", "{{.Server.APIVersion}}")
    if answer.code == 0:
        version = answer.out.strip()
        # Podman answers with its own version; its Docker API has this one since Podman 3.
        return version if version.startswith("1.") else "1.40"
    if (error := explain.not_ready(access, answer.err)) is not None:
        raise error
    by_hand = access.ssh_command(*_by_hand(access), "docker", "version")
    if answer.code == 127 or "command not found" in answer.err:
        raise NoEngineError("Docker is not installed", where=access.host, hint="`deploy up` installs it.")
    said = (answer.err.strip().splitlines() or ["no reason given"])[-1]
    raise NoEngineError(
        f"the Docker Engine does not answer: {said}", where=access.host, hint=f"Try: {by_hand}"
    )


class _SshHttpConnection(SSHConnection):
    """One HTTP connection: a command on the host whose stdin and stdout are the engine's socket."""

    def __init__(self, transport: _Transport, command: Privileged) -> None:
        super().__init__(timeout=TIMEOUT_S)
        self._transport = transport
        self._command = command

    def connect(self) -> None:
        channel: Any = self._transport.open_session(timeout=TIMEOUT_S)
        channel.settimeout(self.timeout)
        channel.exec_command(self._command.line)
        if self._command.first:
            channel.sendall(self._command.first)
        self.sock = channel


class _Pool(SSHConnectionPool):
    def __init__(self, transport: _Transport, command: Privileged) -> None:
        super().__init__(timeout=TIMEOUT_S)
        self._transport = transport
        self._command = command

    def _new_conn(self) -> Any:
        return _SshHttpConnection(self._transport, self._command)


class _Adapter(BaseHTTPAdapter):
    """Hands every request of the SDK to the one pool of this host."""

    def __init__(self, transport: _Transport, command: Privileged) -> None:
        super().__init__()
        self._pool = _Pool(transport, command)

    def get_connection(self, url: Any, proxies: Any = None) -> _Pool:
        return self._pool

    def close(self) -> None:
        self._pool.close()
        super().close()
