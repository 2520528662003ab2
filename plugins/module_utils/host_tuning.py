"""What of role host_tuning's work is already done on a host: limits, clock, names, IOMMU. Python 3.8+."""

from __future__ import annotations

import concurrent.futures
import socket
import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils import host_pci
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

# Names that are resolved at the same time.
LOOKUPS = 64
HOSTS_FILE = "/etc/hosts"
# Lines that blockinfile puts around the role's entries.
HOSTS_BEGIN, HOSTS_END = "# BEGIN headfirst host_tuning", "# END headfirst host_tuning"
# Any of these keeps a clock; timesyncd comes last, for the others replace it.
CLOCKS = ("chrony", "ntpsec", "ntp", "openntpd", "systemd-timesyncd")
PROPERTIES = "LoadState,ActiveState,UnitFileState,ConditionResult,ConditionTimestampMonotonic"

Unit = t.Dict[str, str]


def units(source: HostSource, *names: str) -> t.Dict[str, Unit]:
    """systemd's properties of services by their name without the ending."""
    shown = source.run("systemctl", "show", "--property", PROPERTIES, *(f"{name}.service" for name in names))
    blocks = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in shown.split("\n\n")]
    # An alias has the Id of its target, so blocks are distinguished by their order.
    return {name: blocks[at] if at < len(blocks) else {} for at, name in enumerate(names)}


def clock(units: t.Dict[str, Unit]) -> t.Dict[str, t.Any]:
    """Keys service (what keeps the clock, or could; "" for none), running, refused (it must not start)."""
    there = [
        (name, units[name]) for name in CLOCKS if units.get(name, {}).get("LoadState") in ("loaded", "masked")
    ]
    running = [name for name, unit in there if unit["ActiveState"] == "active"]
    usable = [name for name, unit in there if unit["LoadState"] == "loaded"]
    service = (running + usable + [name for name, _state in there] + [""])[0]
    return {
        "service": service,
        "running": bool(running),
        "refused": not running and _refused(units.get(service, {})),
    }


def _refused(unit: Unit) -> bool:
    tried = unit.get("ConditionTimestampMonotonic", "0") not in ("", "0")
    return unit.get("LoadState") == "masked" or (tried and unit.get("ConditionResult") == "no")


def keeps_running(unit: Unit) -> bool:
    """Whether a service runs, and will after the next boot."""
    return unit.get("ActiveState") == "active" and unit.get("UnitFileState") == "enabled"


def outdated(source: HostSource, files: t.Dict[str, str]) -> t.List[str]:
    """Files that do not hold the wanted text; where that is "", files that are there."""
    return [path for path, text in files.items() if source.read_bytes(path) != text.encode()]


def limits_refused(source: HostSource, memlock: str, nofile: int) -> bool:
    """Whether root may not set these limits: PAM would then refuse every login and every sudo."""
    locked = memlock if memlock == "unlimited" else str(int(memlock) * 1024)
    tried = source.run(
        "prlimit", f"--memlock={locked}:{locked}", f"--nofile={nofile}:{nofile}", "echo", "set"
    )
    return tried.strip() != "set"


def hosts(source: HostSource, addresses: t.Dict[str, str]) -> t.Dict[str, t.Dict[str, str]]:
    """Keys present, the entries of the role's block in /etc/hosts, and needed, those that belong there."""
    present = block(source.read(HOSTS_FILE))
    hostname = source.read("/proc/sys/kernel/hostname").partition(".")[0]
    # Its own name is left alone: `hostname -f` takes the domain from the distribution's line.
    others = {name: address for name, address in addresses.items() if name.partition(".")[0] != hostname}
    resolved = {name for name, address in others.items() if present.get(name) == address}
    unknown = unresolved({name: address for name, address in others.items() if name not in resolved})
    return {
        "present": present,
        "needed": {name: address for name, address in others.items() if name in resolved or name in unknown},
    }


def block(text: str) -> t.Dict[str, str]:
    """Name → address of the lines between the role's markers."""
    inside = text.partition(HOSTS_BEGIN)[2].partition(HOSTS_END)[0]
    return {name: words[0] for words in map(str.split, inside.splitlines()) for name in words[1:]}


def unresolved(addresses: t.Dict[str, str]) -> t.Set[str]:
    """Names whose first address of the wanted family is another one, or that have none."""
    if not addresses:
        return set()
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(len(addresses), LOOKUPS)) as pool:
        lookups = {name: pool.submit(_first, name, address) for name, address in addresses.items()}
        return {name for name, address in addresses.items() if lookups[name].result() != address}


def _first(name: str, like: str) -> str:
    family = socket.AF_INET6 if ":" in like else socket.AF_INET
    try:
        return str(socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)[0][4][0])
    except socket.gaierror:
        return ""


def peer_to_peer(source: HostSource) -> t.Dict[str, t.List[str]]:
    """What makes GPUs and network cards talk through the CPU: acs_bridges, and translated, devices whose
    addresses the IOMMU translates. Both are about GPUs, so a host without them has neither.
    """
    devices = host_pci.devices(source)
    return {
        "acs_bridges": host_pci.acs_bridges(source, devices),
        "translated": [
            gpu.address
            for gpu in host_pci.gpus(devices)
            if source.read(f"{host_pci.DEVICES}/{gpu.address}/iommu_group/type").startswith("DMA")
        ],
    }
