"""SSH connections with paramiko, host keys checked, ~/.ssh/config honoured (names, keys, jump hosts)."""

from __future__ import annotations

import contextlib
import getpass
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import paramiko

from headfirst.live import explain
from headfirst.live.access import HostAccess

CONNECT_TIMEOUT_S = 10
# Hosts that are asked at the same time; the others wait for their turn.
AT_ONCE = 32
_CONFIG = Path("~/.ssh/config")
_KNOWN_HOSTS = (Path("/etc/ssh/ssh_known_hosts"), Path("~/.ssh/known_hosts"))

# paramiko logs each refused login with a traceback; the error that is raised says it.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class Answer(NamedTuple):
    """What a command on a host gave."""

    code: int
    out: str
    err: str


@contextlib.contextmanager
def ssh(access: HostAccess) -> Iterator[paramiko.SSHClient]:
    """An open connection to the host; closed at the end, its jump host too.

    Raises NotReadyError when the host does not answer, its key is unknown or changed, or the login fails.
    """
    with contextlib.ExitStack() as stack:
        try:
            client = _connect(access, stack)
        except paramiko.BadHostKeyException as error:
            raise explain.unreachable(access, "REMOTE HOST IDENTIFICATION HAS CHANGED") from error
        except paramiko.ssh_exception.NoValidConnectionsError as error:
            said = "; ".join(str(cause) for cause in error.errors.values())
            raise explain.unreachable(access, said) from error
        except paramiko.PasswordRequiredException as error:
            raise explain.unreachable(access, f"permission denied: {error}") from error
        except paramiko.AuthenticationException as error:
            raise explain.unreachable(access, f"permission denied: {error}") from error
        except paramiko.SSHException as error:
            unknown = "not found in known_hosts" in str(error)
            said = "host key verification failed" if unknown else str(error)
            raise explain.unreachable(access, said) from error
        except OSError as error:  # no such name, no route, time is up, no such key file
            missing = isinstance(error, FileNotFoundError)
            said = f"no such identity: {error.filename}" if missing else str(error)
            raise explain.unreachable(access, said) from error
        yield client


def run(client: paramiko.SSHClient, command: str, timeout: float = 30.0) -> Answer:
    """Run a short command; `timeout` is in seconds without output."""
    _, out, err = client.exec_command(command, timeout=timeout)
    # Both are short here, so reading one after the other cannot block.
    text, errors = out.read().decode(errors="replace"), err.read().decode(errors="replace")
    return Answer(out.channel.recv_exit_status(), text, errors)


def transport_of(client: paramiko.SSHClient) -> paramiko.Transport:
    """The open transport of a connected client; SSHException when it has closed."""
    transport = client.get_transport()
    if transport is None:
        raise paramiko.SSHException("the SSH connection is closed")
    return transport


def _connect(access: HostAccess, stack: contextlib.ExitStack, way: Any = None) -> paramiko.SSHClient:
    """Connect over `way`, a socket-like object, or over what ssh's configuration says."""
    config = _ssh_config(access.address)
    hostname, port = _target(access, config)
    client = paramiko.SSHClient()
    stack.callback(client.close)
    for path in [access.known_hosts] if access.known_hosts else _KNOWN_HOSTS:
        if path.expanduser().is_file():
            client.load_system_host_keys(str(path.expanduser()))
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    keys: Any = [str(access.private_key)] if access.private_key else config.get("identityfile")
    client.connect(
        hostname,
        port=port,
        username=access.user or config.get("user") or getpass.getuser(),
        key_filename=keys,
        # A key that is named is the one to use, as `IdentitiesOnly` would have it.
        look_for_keys=access.private_key is None,
        timeout=CONNECT_TIMEOUT_S,
        banner_timeout=CONNECT_TIMEOUT_S,
        auth_timeout=CONNECT_TIMEOUT_S,
        sock=way or _configured_way(config, (hostname, port), stack),
    )
    transport_of(client).set_keepalive(15)
    return client


def _configured_way(config: dict[str, Any], target: tuple[str, int], stack: contextlib.ExitStack) -> Any:
    """A socket-like way to `target` if ssh's configuration names jump hosts or a proxy command."""
    jumps = config.get("proxyjump", "none")
    if jumps != "none":
        hops = [_jump_access(jump) for jump in jumps.split(",")]
        targets = [_target(hop, _ssh_config(hop.address)) for hop in hops[1:]] + [target]
        way = None
        for hop, beyond in zip(hops, targets, strict=True):
            transport = transport_of(_connect(hop, stack, way))
            way = transport.open_channel("direct-tcpip", beyond, ("127.0.0.1", 0), timeout=CONNECT_TIMEOUT_S)
        return way
    command = config.get("proxycommand", "none")
    return None if command == "none" else paramiko.ProxyCommand(command)


def _jump_access(jump: str) -> HostAccess:
    """`[user@]host[:port]`, as ProxyJump takes it."""
    user, _, rest = jump.rpartition("@")
    host, _, port = rest.partition(":")
    return HostAccess(host, host, user=user or None, port=int(port) if port else None)


def _target(access: HostAccess, config: dict[str, Any]) -> tuple[str, int]:
    return config.get("hostname", access.address), access.port or int(config.get("port", 22))


def _ssh_config(address: str) -> dict[str, Any]:
    path = _CONFIG.expanduser()
    return dict(paramiko.SSHConfig.from_path(str(path)).lookup(address)) if path.is_file() else {}
