"""What role nvidia_container_toolkit needs of a host, and what is left to do there. Python 3.8+."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils import (
    apt_sources,
    docker_api,
    host_driver,
    host_facts,
    host_pci,
)
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
# Written when the package is installed; the engine reads the package's hook only when it starts.
INSTALLED, STARTED = "/var/lib/dpkg/info/nvidia-container-toolkit.list", "/var/run/docker.pid"
SPECS = ("/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml")
UNITS = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
LINKS_RULE = "/etc/udev/rules.d/71-headfirst-nvidia-dev-char.rules"
CONTROL_DEVICE = "195:255"  # /dev/nvidiactl


def gather(source: HostSource, version: str, repository: str, excluded: str) -> t.Dict[str, t.Any]:
    """Facts by the keys that module nvidia_container_toolkit_facts documents."""
    release = host_facts.os_release(source.read("/etc/os-release"))
    gpus = host_pci.gpus(host_pci.devices(source))
    facts: t.Dict[str, t.Any] = {"os": release.get("ID", ""), "gpus": len(gpus), "todo": []}
    if not gpus:
        return facts
    facts.update(
        driver=host_driver.version(source.read("/proc/driver/nvidia/version")),
        packages=host_driver.installed(source, PACKAGES),
        held=sorted(host_driver.holds(source) & set(PACKAGES)),
        repository_known=apt_sources.has(source, repository, excluded),
        engine=engine(source),
        links=CONTROL_DEVICE in source.names("/dev/char") and bool(source.read(LINKS_RULE)),
        cdi=cdi(source),
    )
    return {**facts, "todo": todo(facts, version)}


def engine(source: HostSource) -> t.Dict[str, t.Any]:
    """The engine: answers, podman, containers, cgroup_driver, live_restore, configured, running, stale.

    `configured` and `running` report the runtime nvidia in daemon.json and in the process; a stale engine is
    older than the toolkit and refuses --gpus.
    """
    info = source.docker("/info")
    config = _config(source.read("/etc/docker/daemon.json"))
    times = [int(word) for word in source.run("stat", "-c", "%Y", INSTALLED, STARTED).split()]
    return {
        "answers": bool(info),
        "podman": docker_api.is_podman(source.docker("/version")),
        "containers": info.get("ContainersRunning", 0),
        "cgroup_driver": info.get("CgroupDriver", ""),
        "live_restore": bool(config.get("live-restore")),
        "configured": "nvidia" in config.get("runtimes", {}),
        "running": "nvidia" in info.get("Runtimes", {}),
        "stale": len(times) == 2 and times[0] > times[1],
    }


def cdi(source: HostSource) -> t.Dict[str, t.Any]:
    """units (those of the toolkit's own refresh that exist), enabled (all of them), specs (their text)."""
    states = {unit: source.run("systemctl", "is-enabled", unit).strip() for unit in UNITS}
    units = [unit for unit, state in states.items() if state not in ("", "not-found")]
    return {
        "units": units,
        "enabled": all(states[unit] == "enabled" for unit in units),
        "specs": "".join(source.read(path) for path in SPECS),
    }


def todo(facts: t.Dict[str, t.Any], version: str) -> t.List[str]:
    """What is left to do, in this order: packages, hold, runtime, links, cdi."""
    installed, docker = facts["packages"], facts["engine"]
    right = len(installed) == len(PACKAGES) and all(is_version(each, version) for each in installed.values())
    tasks = {
        "packages": not right,
        "hold": len(facts["held"]) < len(PACKAGES),
        # Podman gets the GPUs by CDI alone.
        "runtime": not docker["podman"]
        and (not (docker["configured"] and docker["running"]) or docker["stale"]),
        "links": not docker["podman"] and docker["cgroup_driver"] == "systemd" and not facts["links"],
        # A specification names the driver's libraries; that of another driver is worth nothing.
        "cdi": not facts["cdi"]["enabled"]
        or not facts["driver"]
        or facts["driver"] not in facts["cdi"]["specs"],
    }
    return [what for what, is_left in tasks.items() if is_left]


def is_version(installed: str, planned: str) -> bool:
    """Whether a package has the planned version, which may leave out the packaging's revision; "" is any."""
    return not planned or installed == planned or installed.startswith(planned + "-")


def _config(text: str) -> t.Dict[str, t.Any]:
    try:
        return json.loads(text or "{}")
    except ValueError:  # nvidia-ctk will report what is wrong with it
        return {}
