"""Which systems the hosts run, asked over SSH: packages of a bundle are those of one system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headfirst.common.errors import HeadfirstError
from headfirst.common.untrusted import UntrustedError, device_name, json_document, json_object
from headfirst.control.bundle.systems import ARCHITECTURES, System
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.live.ssh_access.ssh import run, ssh, try_each
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.host import devices

_READ = """python3 -c '
import json, os, shlex
release = dict(line.split("=", 1) for line in open("/etc/os-release") if "=" in line)
system = os.uname()
print(json.dumps({
    "id": "".join(shlex.split(release.get("ID", ""))),
    "release": "".join(shlex.split(release.get("VERSION_ID", ""))),
    "machine": system.machine,
    "kernel": system.release,
    "driver": os.path.exists("/proc/driver/nvidia/version"),
    "headers": os.path.exists("/lib/modules/" + system.release + "/build"),
}))'"""


@dataclass(frozen=True)
class HostSystems:
    """Systems of all hosts, each once, and kernels whose headers a driver's build lacks; by host too."""

    systems: tuple[System, ...]
    kernels: tuple[str, ...] = ()
    by_host: tuple[tuple[str, System], ...] = ()


def ask(cluster: Cluster, names: Sequence[str] | None = None) -> HostSystems:
    """The systems of these hosts, or of all. Raises the error of the first that cannot be asked."""
    hosts = [access for name, access in host_access(cluster).items() if names is None or name in names]
    facts: dict[str, dict[str, Any]] = {}
    for host, answer in try_each(hosts, _ask).items():
        if isinstance(answer, HeadfirstError):
            raise answer
        facts[host] = answer
    by_host = {host: _system(answer, host) for host, answer in facts.items()}
    gpus = {host.name for host in devices.hosts_with_driver(cluster)}
    kernels = {
        device_name(answer["kernel"], what="the kernel's release", where=host)
        for host, answer in facts.items()
        if host in gpus and not (answer["driver"] or answer["headers"])
    }
    systems = sorted(set(by_host.values()), key=str)
    return HostSystems(tuple(systems), tuple(sorted(kernels)), tuple(by_host.items()))


def _ask(access: HostAccess) -> dict[str, Any]:
    with ssh(access) as connection:
        answer = run(connection, _READ)
    if answer.code != 0:
        said = (answer.err.strip().splitlines() or ["no reason given"])[-1]
        raise HeadfirstError(f"the system of the host cannot be read: {said}", where=access.host)
    what = "the host's system"
    facts = json_object(json_document(answer.out, what=what, where=access.host), what=what, where=access.host)
    if not {"id", "release", "machine", "kernel", "driver", "headers"} <= facts.keys():
        raise UntrustedError("the host's system is not complete", where=access.host)
    return facts


def _system(answer: dict[str, Any], host: str) -> System:
    id, release, machine = (
        device_name(answer[key], what=f"the system's {key}", where=host)
        for key in ("id", "release", "machine")
    )
    return System(id=id, release=release, architecture=ARCHITECTURES.get(machine, machine))
