"""SSH connections with paramiko, host keys checked, by the settings that ssh itself has for the host."""

from __future__ import annotations

import contextlib
import getpass
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import paramiko

from headfirst.common.errors import HeadfirstError, InputError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.live.ssh_access import explain, openssh
from headfirst.control.live.ssh_access.local import LocalConnection
from headfirst.control.live.ssh_access.openssh import BadOptionError, Settings, value_of
from headfirst.control.live.ssh_access.privileged import privileged
from headfirst.decide.cluster.login import HostAccess

CONNECT_TIMEOUT_S = 10
# Hosts that are asked at the same time; the others wait for their turn.
AT_ONCE = 32
ANSWER_BYTES = 1 << 20
ERROR_BYTES = 1 << 16
HostConnection: TypeAlias = paramiko.SSHClient | LocalConnection
_Reply = TypeVar("_Reply")

# paramiko logs each refused login with a traceback; the error that is raised has it.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class CommandOutput(NamedTuple):
    """What a command on a host gave."""

    code: int
    out: str
    err: str


@contextlib.contextmanager
def ssh(access: HostAccess) -> Iterator[HostConnection]:
    """An open connection to the host, without SSH where that is this machine; closed at the end, its way too.

    Raises NotReadyError when the host does not answer, its key is unknown or changed, or the login fails.
    """
    if access.obstacle:
        raise InputError(
            access.obstacle, where=access.host, hint="Give the host an SSH login in the inventory."
        )
    with contextlib.ExitStack() as stack:
        client = LocalConnection() if access.local else _opened(access, stack)
        try:
            yield client
        except UntrustedError as error:
            error.where = error.where or access.host
            raise
        except TimeoutError as error:  # it has logged us in, and then nothing
            raise explain.unreachable(access, str(error) or "no answer in time") from error


def _opened(access: HostAccess, stack: contextlib.ExitStack) -> paramiko.SSHClient:
    try:
        return _connect(access, stack)
    except BadOptionError as error:
        raise explain.bad_options(access, str(error)) from error
    except paramiko.BadHostKeyException as error:
        raise explain.unreachable(access, "REMOTE HOST IDENTIFICATION HAS CHANGED") from error
    except paramiko.ssh_exception.NoValidConnectionsError as error:
        said = "; ".join(str(cause) for cause in error.errors.values())
        raise explain.unreachable(access, said) from error
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


def run(
    client: HostConnection,
    command: str,
    timeout: float = 30.0,
    first: bytes = b"",
    limit: int = ANSWER_BYTES,
) -> CommandOutput:
    """Run a short command; `timeout` is in seconds without output, `first` is its whole input.

    Raises UntrustedError for an answer of more than `limit` bytes.
    """
    stdin, out, err = client.exec_command(command, timeout=timeout)
    if first:
        stdin.write(first)
        stdin.flush()
    stdin.channel.shutdown_write()
    text = out.read(limit + 1)
    if len(text) > limit:
        out.channel.close()
        raise UntrustedError(f"the answer to a command is larger than {limit} bytes")
    errors = err.read(ERROR_BYTES)
    if len(errors) == ERROR_BYTES:
        out.channel.close()  # it would wait for us to read the rest
    if not out.channel.status_event.wait(timeout):
        raise TimeoutError(f"no exit status within {timeout:.0f} s")
    code = int(out.channel.recv_exit_status())
    return CommandOutput(code, text.decode(errors="replace"), errors.decode(errors="replace"))


def run_privileged(
    access: HostAccess,
    client: HostConnection,
    *command: str,
    timeout: float = 30.0,
    limit: int = ANSWER_BYTES,
) -> CommandOutput:
    """As `run`, as the user that Ansible's tasks become; the command gets no input."""
    line, first = privileged(access, *command)
    return run(client, line, timeout, first, limit)


def transport_of(client: paramiko.SSHClient) -> paramiko.Transport:
    """The open transport of a connected client; SSHException when it has closed."""
    transport = client.get_transport()
    if transport is None:
        raise paramiko.SSHException("the SSH connection is closed")
    return transport


def _connect(access: HostAccess, stack: contextlib.ExitStack) -> paramiko.SSHClient:
    config = openssh.settings(access.ssh_words())
    hostname, port = value_of(config, "hostname", access.address), int(value_of(config, "port", "22"))
    user = value_of(config, "user", getpass.getuser())
    tokens = {
        "%": "%", "h": hostname, "n": access.address, "p": str(port), "r": user, "u": getpass.getuser(),
        "d": str(Path.home()),
    }  # fmt: skip
    client = paramiko.SSHClient()
    stack.callback(client.close)
    _trust(client, config, (hostname, port), tokens)
    way = None
    argv = openssh.command(config, (*access.options, *access.more_options), (hostname, port), tokens)
    if argv:
        way = stack.enter_context(openssh.open_way(argv, access.password))
    keys = _keys(access, config, tokens)
    try:
        client.connect(
            hostname,
            port=port,
            username=user,
            password=access.password,
            key_filename=keys,
            # ssh has named the keys to use, its defaults too.
            look_for_keys=False,
            allow_agent=_uses_keys(config) and value_of(config, "identityagent", "") != "none",
            timeout=CONNECT_TIMEOUT_S,
            banner_timeout=CONNECT_TIMEOUT_S,
            auth_timeout=CONNECT_TIMEOUT_S,
            sock=way.socket if way else None,
        )
    except (EOFError, OSError, paramiko.SSHException) as error:
        if way and not _answered(client):
            said = way.complaint() or str(error)
            raise explain.no_way(access, openssh.shown(argv), said) from error
        raise
    transport_of(client).set_keepalive(15)
    return client


def _answered(client: paramiko.SSHClient) -> bool:
    """Whether an sshd has spoken at the end of the way."""
    transport = client.get_transport()
    return transport is not None and bool(transport.remote_version)


def _uses_keys(config: Settings) -> bool:
    return value_of(config, "pubkeyauthentication", "yes") not in ("no", "false")


def _keys(access: HostAccess, config: Settings, tokens: Mapping[str, str]) -> list[str]:
    """Key files that ssh would try. One that the inventory names must exist; of the others, those that do."""
    if access.private_key and not access.private_key.is_file():
        raise FileNotFoundError(2, "no such key", str(access.private_key))
    if not _uses_keys(config):
        return []
    return [str(path) for path in openssh.files(config, "identityfile", tokens) if path.is_file()]


def _trust(
    client: paramiko.SSHClient, config: Settings, target: tuple[str, int], tokens: Mapping[str, str]
) -> None:
    """Load the known host keys, and decide what happens to an unknown one, as ssh is set to do."""
    hostname, port = target
    name = hostname if port == 22 else f"[{hostname}]:{port}"
    for option in ("globalknownhostsfile", "userknownhostsfile"):
        for path in openssh.files(config, option, tokens):
            if path.is_file():
                client.load_system_host_keys(str(path))
    alias = value_of(config, "hostkeyalias", "")
    if alias and alias != "none":
        host_keys: Any = client._system_host_keys.lookup(alias)
        for kind, key in (host_keys or {}).items():
            client.get_host_keys().add(name, kind, key)
    lax = value_of(config, "stricthostkeychecking", "ask") in ("no", "off", "false", "accept-new")
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy() if lax else paramiko.RejectPolicy())


def try_each(
    hosts: Sequence[HostAccess], ask: Callable[[HostAccess], _Reply]
) -> dict[str, _Reply | HeadfirstError]:
    """The answers by host, with the error of each host that cannot be asked in the place of its answer."""
    if not hosts:
        return {}

    def attempt(access: HostAccess) -> _Reply | HeadfirstError:
        try:
            return ask(access)
        except HeadfirstError as error:
            return error

    with ThreadPoolExecutor(max_workers=min(len(hosts), AT_ONCE)) as pool:
        return dict(zip([access.host for access in hosts], pool.map(attempt, hosts), strict=True))
