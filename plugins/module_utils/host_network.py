"""The listeners on a host's ports, and which peers answer it; standard library, Python 3.8+."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import random
import re
import selectors
import shutil
import socket
import subprocess
import time
import typing as t

CONNECT_TIMEOUT_S = 3.0
ANSWERS = (0, errno.ECONNREFUSED)
REJECTIONS = (errno.EHOSTUNREACH, errno.EACCES)  # what an ICMP message "administratively prohibited" becomes
AT_ONCE = 256  # connections; a login may open 1024 files
ENGINE_TIMEOUT_S = 20.0
LISTEN = "0A"  # TCP_LISTEN in the kernel's include/net/tcp_states.h
EPHEMERAL = (32768, 60999)  # net.ipv4.ip_local_port_range: where NCCL and gloo listen
Target = t.Tuple[str, int]
CONTAINER_ID = re.compile(r"[0-9a-f]{64}")


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


def busy_ports(ports: t.List[int]) -> t.List[t.Dict[str, t.Any]]:
    """Which of `ports` have a listener: {port, process, container}.

    `process` is "name (pid)" or "" when it cannot be seen; `container` is the name of a Headfirst container
    that holds the port, or "".
    """
    inodes = _listeners()
    busy = sorted(set(ports) & set(inodes))
    if not busy:
        return []
    owners = _owners({inodes[port] for port in busy})
    containers, published = _our_containers()
    result = []
    for port in busy:
        pid = owners.get(inodes[port])
        ours = containers.get(_container_of(pid), "") if pid else ""
        result.append(
            {
                "port": port,
                "process": _name(pid) if pid else "",
                "container": ours or published.get(port, ""),
            }
        )
    return result


def name_containers(processes: t.List[t.Dict[str, t.Any]]) -> None:
    """Give each process, by its `pid`, the `container` of ours that it runs in, or ""."""
    containers = _our_containers()[0] if processes else {}
    for process in processes:
        process["container"] = containers.get(_container_of(process["pid"]), "")


def _listeners() -> t.Dict[int, str]:
    """Port → socket inode of every TCP listener, IPv4 and IPv6."""
    inodes = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in _read(table).splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN:
                inodes[int(fields[1].rsplit(":", 1)[1], 16)] = fields[9]
    return inodes


def _owners(inodes: t.Set[str]) -> t.Dict[str, int]:
    """Socket inode → pid, for those processes that this user may read."""
    targets = {f"socket:[{inode}]": inode for inode in inodes}
    pids = {}
    for link in glob.iglob("/proc/[0-9]*/fd/*"):
        try:
            inode = targets.get(os.readlink(link))
        except OSError:  # the process ended, or belongs to another user
            continue
        if inode is not None:
            pids[inode] = int(link.split("/")[2])
    return pids


def _our_containers() -> t.Tuple[t.Dict[str, str], t.Dict[int, str]]:
    """Container id → name and published port → name, of the running containers named headfirst-*."""
    docker = shutil.which("docker")
    if docker is None:
        return {}, {}
    command = [docker, "ps", "--no-trunc", "--filter=name=^headfirst-"]
    try:
        listing = subprocess.run(
            [*command, "--format={{.ID}}\t{{.Names}}\t{{.Ports}}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,
            timeout=ENGINE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:  # the port is then reported with its process alone
        return {}, {}
    ids, published = {}, {}
    for line in listing.stdout.splitlines():
        container, name, ports = line.split("\t")
        ids[container] = name
        for port in re.findall(r":(\d+)->", ports):
            published[int(port)] = name
    return ids, published


def _name(pid: int) -> str:
    return f"{_read(f'/proc/{pid}/comm').strip()} ({pid})"


def _container_of(pid: int) -> str:
    # The innermost container comes last in the path.
    ids = CONTAINER_ID.findall(_read(f"/proc/{pid}/cgroup"))
    return ids[-1] if ids else ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:  # no IPv6, or the process has ended
        return ""
