"""The rules of role `check`: what makes a host unfit, why that matters, and what to type.

A rule of one host is a function that yields a sentence for each thing it finds wrong, registered with `rule`.
The same for GPUs, network and services: check_*_rules.py; rules that compare hosts: check_findings.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

GB = 10**9
Facts = dict[str, Any]
Limits = dict[str, Any]
Finding = dict[str, str]


@dataclass(frozen=True)
class CheckRule:
    """One check. `look` takes a host's facts (module host_facts) and the limits of the role."""

    id: str
    look: Callable[[Facts, Limits], Iterator[str]]
    why: str
    fix: str
    severity: str = "error"  # error ends the run; warning is only reported
    failures: tuple[int, ...] = ()  # numbers of known failures in docs/diagnose.md
    gpus: bool = False  # read only where GPUs serve
    role: str = ""  # the role that fixes it, where that is applied after the check
    reboot: bool = False  # and fixes it only by a reboot


RULES: list[CheckRule] = []


def rule(id: str, **fields: Any) -> Callable[[Callable[[Facts, Limits], Iterator[str]]], CheckRule]:
    """Register the decorated function as a rule; `fields` are the others of CheckRule."""

    def register(look: Callable[[Facts, Limits], Iterator[str]]) -> CheckRule:
        RULES.append(CheckRule(id, look, **fields))
        return RULES[-1]

    return register


def finding(id: str, severity: str, host: str, what: str, why: str, fix: str) -> Finding:
    """One entry of `headfirst_findings`."""
    return {"id": id, "severity": severity, "host": host, "what": what, "why": why, "fix": fix}


def check_host(host: str, facts: Facts, limits: Limits) -> list[Finding]:
    """Apply every rule to one host."""
    return [
        finding(rule.id, severity, host, what, rule.why, fix)
        for rule in RULES
        if limits["gpus"] or not rule.gpus
        for severity, fix in [_outlook(rule, limits)]
        for what in rule.look(facts, limits)
    ]


def _outlook(rule: CheckRule, limits: Limits) -> tuple[str, str]:
    """Severity and fix: what a role is about to fix stops nobody."""
    if rule.role not in limits["roles_to_come"]:
        return rule.severity, rule.fix
    if rule.reboot and not limits["may_reboot"]:
        return rule.severity, f"Allow the reboot that role {rule.role} needs, or: {rule.fix}"
    return "warning", f"Role {rule.role} does this next. By hand: {rule.fix}"


@rule(
    "sudo",
    why="The roles install packages and write under /etc.",
    fix="Run the play with become, as a user who may use sudo.",
)
def _sudo(facts: Facts, limits: Limits) -> Iterator[str]:
    if facts["uid"] != 0:
        yield f"the tasks run as uid {facts['uid']}, not as root"


@rule(
    "os",
    why="Packages and paths differ between distributions; only these are supported.",
    fix="Install a supported system, or add yours to check_supported_os, without support.",
)
def _os(facts: Facts, limits: Limits) -> Iterator[str]:
    if facts["os"] not in limits["supported_os"]:
        yield f"{facts['os_name']} is not supported (supported: {', '.join(limits['supported_os'])})"


@rule(
    "python",
    why="The tools that fetch and convert weights run on the node.",
    fix="apt-get install a newer python3, and point ansible_python_interpreter to it.",
)
def _python(facts: Facts, limits: Limits) -> Iterator[str]:
    if number(facts["python"]) < number(limits["python_min"]):
        yield f"Python is {facts['python']}, older than {limits['python_min']}"


def some(names: Iterable[str]) -> str:
    """The first three names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return ", ".join(listed[:3]) + more


def number(text: str) -> tuple[int, ...]:
    """Major and minor of a version."""
    return tuple(int(part) for part in text.split(".")[:2])


@rule(
    "architecture",
    why="The engine's image is built for these architectures.",
    fix="Take the host out of the inventory.",
)
def _architecture(facts: Facts, limits: Limits) -> Iterator[str]:
    if facts["architecture"] not in limits["architectures"]:
        yield f"the architecture {facts['architecture']} is not among {', '.join(limits['architectures'])}"


@rule(
    "disk",
    why="The weights and their conversion must fit.",
    fix="Free space on that filesystem, or choose another with weights_dir.",
)
def _disk(facts: Facts, limits: Limits) -> Iterator[str]:
    have, need = facts["disk_free_bytes"] + facts["disk_used_bytes"], limits["min_disk_gb"] * GB
    if have < need:
        yield (
            f"{facts['disk_free_bytes'] / GB:.1f} GB free for {limits['disk_path']}, where"
            f" {facts['disk_used_bytes'] / GB:.1f} GB are stored already; {need / GB:.1f} GB are needed"
        )


@rule(
    "memory",
    why="The engine would end, or be killed, while it starts.",
    fix="Use a host with more memory, a smaller model, or keep less KV cache in the host's memory "
    "(engine_args).",
)
def _memory(facts: Facts, limits: Limits) -> Iterator[str]:
    if facts["memory_bytes"] < limits["min_memory_gb"] * GB:
        yield f"{facts['memory_bytes'] / GB:.1f} GB of memory; {limits['min_memory_gb']:.1f} GB are needed"


@rule(
    "port",
    failures=(10,),
    why="The service cannot listen there.",
    fix="Stop that process, or choose another port in the inventory (engine_port, dist_port, router_port, "
    "webui_port, proxy_port).",
)
def _port(facts: Facts, limits: Limits) -> Iterator[str]:
    for busy in facts["busy_ports"]:
        if not busy["container"]:
            yield f"port {busy['port']} is in use by {busy['process'] or 'a process that cannot be seen'}"


@rule(
    "clock",
    why="Sign-in tokens and certificates depend on the time, and logs of hosts are compared by time.",
    fix="apt-get install systemd-timesyncd && timedatectl set-ntp true, or use your own time server.",
)
def _clock(facts: Facts, limits: Limits) -> Iterator[str]:
    if clock_is_wrong(facts, limits):
        offset, error = facts["clock_offset_s"], facts["clock_error_s"]
        way = "ahead of" if offset > 0 else "behind"
        yield f"the clock is {abs(offset):.0f} s {way} the controller's, give or take {error:.1f} s"


def clock_is_wrong(facts: Facts, limits: Limits) -> bool:
    """Whether a clock is certainly further from the controller's than the limit."""
    return abs(facts["clock_offset_s"]) - facts["clock_error_s"] > limits["max_clock_skew_s"]


@rule(
    "address",
    failures=(3,),
    why="The ranks would bind to an address that this host does not have, and wait without end.",
    fix="Set address in the inventory to one of the host's own (ip -4 address).",
)
def _address(facts: Facts, limits: Limits) -> Iterator[str]:
    addresses = [address for nic in facts["nics"] for address in nic["addresses"]]
    if limits["address"] and limits["address"] not in addresses:
        yield f"{limits['address']} is not an address of this host (it has {', '.join(addresses)})"


@rule(
    "peer",
    failures=(1, 9),
    why="The ranks connect to each other at these addresses.",
    fix="Open the firewall between the hosts, or correct address in the inventory.",
)
def _peer(facts: Facts, limits: Limits) -> Iterator[str]:
    if peers := facts["unreachable_peers"]:
        yield f"no answer from its peer{'s' * (len(peers) > 1)} {some(peers)}"
