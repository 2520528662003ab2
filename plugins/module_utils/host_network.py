"""The listeners on a host's ports, and which peers answer it; standard library, Python 3.8+."""

from __future__ import annotations

import contextlib
import errno
import json
import random
import re
import selectors
import socket
import time
import typing as t
import urllib.parse

from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

CONNECT_TIMEOUT_S = 3.0
ANSWERS = (0, errno.ECONNREFUSED)
REJECTIONS = (errno.EHOSTUNREACH, errno.EACCES)  # what an ICMP message "administratively prohibited" becomes
AT_ONCE = 256  # connections; a login may open 1024 files
EPHEMERAL = (32768, 60999)  # net.ipv4.ip_local_port_range: where NCCL and gloo listen
Target = t.Tuple[str, int]
CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
# A line of `ss`, with the process where this user may see it.
LISTENER = re.compile(r"LISTEN +\d+ +\d+ +\S+:(\d+) +\S+(?: +users:\(\(\"(.*?)\",pid=(\d+))?")
OURS = "/containers/json?" + urllib.parse.urlencode({"filters": json.dumps({"name": ["^headfirst-"]})})


def unreachable(peers: t.List[str], ports: t.List[int]) -> t.List[str]:
    """Peers none of whose `ports` gave an answer; a refused connection is an answer too."""
    heard = _outcomes([(peer, port) for peer in peers for port in ports])
    answering = {peer for (peer, _port), error in heard.items() if error in ANSWERS}
    return [peer for peer in peers if peer not in answering]


def cut_ports(peers: t.List[str], ports: t.List[int]) -> t.List[t.Dict[str, t.Any]]:
    """{peer, port, rejected} of each of `ports`, and of one ephemeral port, that is closed between the hosts.

    `rejected`: a packet filter answers so, as that of role host_tuning; otherwise nothing answers.
    Nobody need listen there: a host without a firewall refuses, and that is an answer.
    """
    probed = [*ports, random.randint(*EPHEMERAL)]  # noqa: S311, not a secret
    targets = [(peer, port) for peer in peers for port in probed]
    heard = _outcomes(targets)
    return [
        {"peer": peer, "port": port, "rejected": heard.get((peer, port)) in REJECTIONS}
        for peer, port in targets
        if heard.get((peer, port)) not in ANSWERS
    ]


def _outcomes(targets: t.List[Target]) -> t.Dict[Target, int]:
    """What became of a connection to each target, as an errno; many at a time, in one thread."""
    heard: t.Dict[Target, int] = {}
    for start in range(0, len(targets), AT_ONCE):
        with contextlib.ExitStack() as stack:
            heard.update(_connect(targets[start : start + AT_ONCE], stack))
    return heard


def _connect(targets: t.List[Target], stack: contextlib.ExitStack) -> t.Dict[Target, int]:
    heard: t.Dict[Target, int] = {}
    waiting = stack.enter_context(selectors.DefaultSelector())
    for target in targets:
        probe = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        probe.setblocking(False)
        try:
            begun = probe.connect_ex(target)
        except socket.gaierror:
            continue
        if begun == errno.EINPROGRESS:
            waiting.register(probe, selectors.EVENT_WRITE, target)
        else:
            heard[target] = begun
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    while waiting.get_map():
        ready = waiting.select(max(0.0, deadline - time.monotonic()))
        if not ready and time.monotonic() >= deadline:
            break
        for key, _events in ready:
            waiting.unregister(key.fileobj)
            error = t.cast(socket.socket, key.fileobj).getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            heard[key.data] = error
    return heard


def busy_ports(source: HostSource, ports: t.List[int]) -> t.List[t.Dict[str, t.Any]]:
    """Which of `ports` have a listener: {port, process, container}.

    `process` is "name (pid)" or "" when it cannot be seen; `container` is the name of a Headfirst container
    that holds the port, or "".
    """
    listeners = _listeners(source) if ports else {}
    busy = sorted(set(ports) & set(listeners))
    containers, published = _our_containers(source) if busy else ({}, {})
    result = []
    for port in busy:
        name, pid = listeners[port]
        container = containers.get(_container_of(source, pid), "") or published.get(port, "")
        result.append({"port": port, "process": f"{name} ({pid})" if pid else "", "container": container})
    return result


def name_containers(source: HostSource, processes: t.List[t.Dict[str, t.Any]]) -> None:
    """Give each process, by its `pid`, the `container` of ours that it runs in, or ""."""
    containers = _our_containers(source)[0] if processes else {}
    for process in processes:
        process["container"] = containers.get(_container_of(source, process["pid"]), "")


def _listeners(source: HostSource) -> t.Dict[int, t.Tuple[str, int]]:
    """Port → name and pid of what listens there, "" and 0 where this user may not see it; IPv4 and IPv6."""
    found = LISTENER.findall(source.run("ss", "-Hltnp"))
    return {int(port): (name, int(pid or 0)) for port, name, pid in found}


def _our_containers(source: HostSource) -> t.Tuple[t.Dict[str, str], t.Dict[int, str]]:
    """Container id → name and published port → name, of the running containers named headfirst-*."""
    ids, published = {}, {}
    listed: t.Any = source.docker(OURS)
    for container in listed:
        ids[container["Id"]] = name = container["Names"][0].lstrip("/")
        for port in container["Ports"] or ():
            published[port.get("PublicPort", 0)] = name
    return ids, published


def _container_of(source: HostSource, pid: int) -> str:
    # The innermost container comes last in the path.
    ids = CONTAINER_ID.findall(source.read(f"/proc/{pid}/cgroup"))
    return ids[-1] if ids else ""
