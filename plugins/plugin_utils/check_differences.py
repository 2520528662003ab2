"""What must be alike on the ranks of a service: one that differs from most is a finding of role `check`."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils.check_network_rules import holder
from ansible_collections.headfirst.serving.plugins.plugin_utils.check_rules import (
    GB,
    Facts,
    Finding,
    Limits,
    clock_is_wrong,
    finding,
    some,
)


@dataclass(frozen=True)
class HostComparison:
    """One thing to compare; `value` is "" where a host has nothing to compare."""

    id: str
    severity: str
    failures: tuple[int, ...]
    noun: str
    why: str
    fix: str
    value: Callable[[Facts, Limits], str]


def differences(facts: Mapping[str, Facts], limits: Mapping[str, Limits]) -> list[Finding]:
    """Compare the ranks of each service; clocks are compared on all hosts."""
    findings = []
    for difference in DIFFERENCES:
        values = {host: difference.value(known, limits[host]) for host, known in facts.items()}
        odd: dict[str, Finding] = {}
        for hosts in _services(limits, facts):
            for each in _odd(difference, {host: values[host] for host in hosts if values[host]}):
                odd.setdefault(each["host"], each)  # once, also for a host of two services
        findings += odd.values()
    return findings + _clocks(facts, limits)


def _services(limits: Mapping[str, Limits], hosts: Iterable[str]) -> list[list[str]]:
    """The hosts of each service; those that name none belong together."""
    by_name: dict[str, list[str]] = {}
    for host in hosts:
        for name in limits[host]["services"] or [""]:
            by_name.setdefault(name, []).append(host)
    return list(by_name.values())


def _odd(difference: HostComparison, values: Mapping[str, str]) -> list[Finding]:
    if len(set(values.values())) < 2:
        return []
    usual = Counter(values.values()).most_common(1)[0][0]
    others = some(host for host, value in values.items() if value == usual)
    return [
        finding(
            difference.id,
            difference.severity,
            host,
            f"its {difference.noun}: {value}; on {others}: {usual}",
            difference.why,
            difference.fix,
        )
        for host, value in values.items()
        if value != usual
    ]


def _clocks(facts: Mapping[str, Facts], limits: Mapping[str, Limits]) -> list[Finding]:
    """Clocks that are near the controller's and certainly far from each other.

    One that is far from the controller's is a finding already, and would make its peers appear wrong.
    """
    clocks = {host: known for host, known in facts.items() if not clock_is_wrong(known, limits[host])}
    if len(clocks) < 2:
        return []
    middle = statistics.median(clock["clock_offset_s"] for clock in clocks.values())
    unsure = statistics.median(clock["clock_error_s"] for clock in clocks.values())
    apart = {host: clock["clock_offset_s"] - middle for host, clock in clocks.items()}
    return [
        finding(
            "clock-differs",
            "error",
            host,
            f"its clock is {abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} its peers'",
            "Logs of the hosts are compared by time, and the first failure decides.",
            "apt-get install systemd-timesyncd && timedatectl set-ntp true, or use your own time server.",
        )
        for host, seconds in apart.items()
        if abs(seconds) - clocks[host]["clock_error_s"] - unsure > limits[host]["max_clock_difference_s"]
    ]


def _gpus(facts: Facts, limits: Limits) -> str:
    names = Counter(gpu["name"] for gpu in facts["gpus"]) if limits["gpus"] else {}
    return ", ".join(f"{count} × {name}" for name, count in sorted(names.items()))


def _driver(facts: Facts, limits: Limits) -> str:
    return str(facts["driver"]["running"]) if limits["gpus"] else ""


def _ports(facts: Facts, limits: Limits) -> str:
    """Active RDMA ports, with their rates; only where RDMA is used, or would be if all had it."""
    return ", ".join(
        f"{hca['name']} {port['gbit']:.0f}G {port['link']}"
        for hca in facts["hcas"]
        for port in hca["ports"]
        if limits["gpus"] and port["state"] == "ACTIVE"
    )


def _firmware(facts: Facts, limits: Limits) -> str:
    return ", ".join(f"{hca['name']} {hca['firmware']}" for hca in facts["hcas"] if limits["gpus"])


def _mtu(facts: Facts, limits: Limits) -> str:
    """Of the interface with the rank's address, and of those below RDMA devices (by the device's name)."""
    nic = holder(facts, limits["address"])
    by_name = {interface["name"]: interface["mtu"] for interface in facts["nics"]}
    below = {
        f"{hca['name']} {by_name[gid['nic']]}"
        for hca in facts["hcas"]
        for port in hca["ports"]
        for gid in port["gids"]
        if gid["nic"] in by_name
    }
    return ", ".join([*([str(nic["mtu"])] if nic else []), *sorted(below)])


def _images(facts: Facts, limits: Limits) -> str:
    return ", ".join(f"{name} {id[7:19]}" for name, id in sorted(facts["docker"]["images"].items()))


DIFFERENCES = [
    HostComparison(
        "gpu-differs",
        "error",
        (45,),
        "GPUs",
        "Ranks run at the pace and with the memory of the smallest, and are spread evenly.",
        "List hosts of one type, or set gpus= to what all have.",
        _gpus,
    ),
    HostComparison(
        "driver-differs",
        "warning",
        (22,),
        "driver",
        "NCCL is tested with equal drivers; a failure on one host alone is hard to find.",
        "Install the same driver on all hosts.",
        _driver,
    ),
    HostComparison(
        "rdma-differs",
        "warning",
        (14,),
        "active RDMA ports",
        "NCCL hangs with all GPUs busy when ranks use different sets; only ports that all have are used.",
        "Bring the missing port up (`ibstat`), or name the same devices with hca= for all.",
        _ports,
    ),
    HostComparison(
        "firmware-differs",
        "warning",
        (14,),
        "RDMA firmware",
        "Devices of different firmware may not agree on what they can do.",
        "Update to one firmware: mlxfwmanager.",
        _firmware,
    ),
    HostComparison(
        "mtu-differs",
        "error",
        (20,),
        "MTU",
        "Large messages get lost between hosts with different MTUs, small ones pass: the ranks hang.",
        "ip link set dev NIC mtu N, the same on all hosts and on the switch, and in its configuration.",
        _mtu,
    ),
    HostComparison(
        "image-differs",
        "warning",
        (22,),
        "engine image",
        "Ranks of different builds are not compatible.",
        "`deploy up` copies the same image to all hosts.",
        _images,
    ),
]


_WHY = "The weights are read there by every rank that serves them in place."


def model_folder(facts: Mapping[str, Facts], limits: Mapping[str, Limits]) -> list[Finding]:
    """A finding for each rank that has not the folder of the first rank with the same one.

    An error where the folder is required. Else such a rank gets a copy of its own: a warning, where the first
    rank has it on a share or the rank has other files there.
    """
    findings, first = [], {}
    for host, host_facts in facts.items():
        path, folder = limits[host].get("model_folder"), host_facts.get("model_folder")
        if not path or not folder:
            continue
        name, right = first.setdefault(path, (host, folder))
        what = _fault(path, folder, name, right)
        required = limits[host]["model_folder_required"]
        if what and (required or right["shared"] or folder["exists"]):
            fix = (
                f"Mount the same file system there, at the same path (findmnt -T {path} on {name} shows it)"
                if right["shared"]
                else f"Copy it from {name}: rsync -a {name}:{path}/ {path}/"
            )
            rest = "." if required else ". Without that the rank gets its own copy."
            findings.append(
                finding("model-folder", "error" if required else "warning", host, what, _WHY, fix + rest)
            )
    return findings


def _fault(path: str, folder: Mapping[str, Any], name: str, right: Mapping[str, Any]) -> str:
    if not folder["exists"]:
        return f"there are no files in {path} ({folder['type']}); {name} has them on {right['type']}"
    if folder["leads_out"]:
        return f"{path} has symbolic links that lead out of it, as in a hub's cache"
    if folder["shape"] != right["shape"]:
        return f"{path} has {_amount(folder)}; {name} has {_amount(right)}, or other names or sizes"
    return ""


def _amount(folder: Mapping[str, Any]) -> str:
    return f"{folder['files']} files of {folder['bytes'] / GB:.1f} GB"
