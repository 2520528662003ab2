"""What the ranks' meeting, their all-reduces and NCCL's log gave: a report, and findings.

`hosts` holds for each host rank, address, ports (random ones), rendezvous_port, link_gbit and rdma_gbit (0:
not known), reach (module `reach`) and, once they have run, run (the program in roles/comm_check/files).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils.check_rules import Finding, finding

# The ids of the findings, with the numbers of known failures in docs/diagnose.md.
RULES: dict[str, tuple[int, ...]] = {
    "comm-reach": (1, 2, 9),
    "comm-ports": (),
    "comm-failed": (2, 12, 13, 14, 18),
    "comm-sums": (),
    "comm-slow": (16, 20, 21, 23, 56),
    "comm-rdma-unused": (17,),
    "comm-gdr": (15, 16),
}
Hosts = Mapping[str, Mapping[str, Any]]
GBIT = 1e9 / 8  # bytes a second
# One thread copies gloo's bytes: no link beyond this is filled by it.
GLOO_GBIT = 10.0
# Shares of the link under which something is wrong: gloo on busy processors, NCCL over TCP, NCCL over RDMA.
GLOO_SHARE, SOCKET_SHARE, RDMA_SHARE = 0.05, 0.2, 0.5
# Payloads that fit into one packet of any MTU.
SMALL = 512
WORDS = {
    "refused": "refused",
    "dropped": "no answer, the packets are silently dropped",
    "unreachable": "unreachable",
    "stranger": "something else answers in its place",
}


def pairs(hosts: Hosts) -> list[dict[str, Any]]:
    """Every try, but for ports that the target could not open.

    {source, target, address, port, rendezvous, state, words, ok}
    """
    by_address = {values["address"]: host for host, values in hosts.items()}
    tried = []
    for source, values in hosts.items():
        for attempt in values["reach"]["reached"]:
            target = by_address[attempt["address"]]
            listening = hosts[target]["reach"]["listening"].get(str(attempt["port"]))
            rendezvous = attempt["port"] == values["rendezvous_port"]
            if listening != "open" and not rendezvous:
                continue
            # Where a service holds the rendezvous port, that somebody answers is proof enough.
            ok = attempt["state"] == "ok" or (attempt["state"] == "stranger" and listening == "held")
            tried.append({"source": source, "target": target, "rendezvous": rendezvous, "ok": ok, **attempt})
    return tried


def report(hosts: Hosts) -> dict[str, Any]:
    """What was tried and measured: {hosts, pairs, rendezvous_held, port, runs, errors, nccl}.

    `port` is one that all ranks reach on rank 0, for the collectives; 0 where ranks do not reach each other.
    """
    tried = pairs(hosts)
    head = min(hosts, key=lambda host: hosts[host]["rank"])
    opened = hosts[head]["reach"]["listening"]
    usable = [port for port in hosts[head]["ports"] if opened.get(str(port)) == "open"]
    met = all(pair["ok"] for pair in tried) and bool(usable)
    runs = {host: known["run"] for host, known in hosts.items() if known.get("run")}
    told = runs.get(head, {}).get("comm", {})
    outcome = {
        "hosts": [
            {"host": host, **{key: known[key] for key in ("rank", "address", "link_gbit", "rdma_gbit")}}
            for host, known in hosts.items()
        ],
        "pairs": tried,
        "rendezvous_held": opened.get(str(hosts[head]["rendezvous_port"])) == "held",
        "port": usable[0] if met else 0,
        "torch": told.get("torch", ""),
        "runs": told.get("runs", []),
        "errors": sorted(_errors(runs), key=lambda error: (error["echo"], error["at"])),
        "nccl": {host: transport(run["comm"]["nccl_log"]) for host, run in runs.items() if _has_nccl(run)},
    }
    outcome["runs"] = [{**run, "link_gbit": link(run, outcome)[0]} for run in outcome["runs"]]
    return outcome


def findings(hosts: Hosts) -> list[Finding]:
    """What is wrong: ports that cannot be reached, all-reduces that fail, give wrong sums or are slow."""
    outcome = report(hosts)
    result = list(_unreached(outcome["pairs"], hosts))
    if not outcome["port"] and not result:
        head = outcome["hosts"][0]["host"]
        what = f"none of the ports {_list(hosts[head]['ports'])} could be opened"
        result.append(_error("comm-ports", head, what, "", "Run it again: other ports are chosen."))
    result += _failed(outcome)
    for run in outcome["runs"]:
        result += _wrong(run, hosts)
        result += _slow(run, outcome)
    return result + list(_way(outcome))


def _has_nccl(run: Mapping[str, Any]) -> bool:
    return any(backend_run["backend"] == "nccl" for backend_run in run.get("comm", {}).get("runs", []))


def _errors(runs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for host, run in runs.items():
        if "comm" in run:
            yield from ({"host": host, **error} for error in run["comm"]["errors"])
        else:  # the container did not start, or was ended
            message = str(run.get("msg", "no word of it"))
            yield {
                "host": host,
                "at": 0.0,
                "doing": "its container started",
                "message": message,
                "fix": "",
                "echo": False,
            }


def _unreached(tried: list[dict[str, Any]], hosts: Hosts) -> Iterator[Finding]:
    """One finding for each direction of a pair and each way in which it fails."""
    bad = [pair for pair in tried if not pair["ok"]]

    def kind(pair: dict[str, Any]) -> tuple[str, str, str, str]:
        return pair["target"], pair["source"], pair["state"], pair["words"]

    for (target, source, state, words), group in groupby(sorted(bad, key=kind), key=kind):
        ports = [pair["port"] for pair in group]
        same = (pair for pair in tried if (pair["source"], pair["target"]) == (source, target))
        reached = [pair["port"] for pair in same if pair["ok"]]
        how = f"{WORDS[state]}: {words}" if state == "unreachable" else WORDS[state]
        rendezvous = hosts[target]["rendezvous_port"]
        port_names = ", ".join(f"{port} (rendezvous)" if port == rendezvous else str(port) for port in ports)
        yield _error(
            "comm-reach",
            target,
            f"{source} ({hosts[source]['address']}) does not reach {target} ({hosts[target]['address']}) "
            f"on port {port_names}: {how}" + (f"; {_list(reached)} can be reached" if reached else ""),
            "The ranks meet on the rendezvous port and then connect over ports that are chosen at run time.",
            f"Open all TCP ports of {target} to {hosts[source]['address']}, and check: "
            "nft list ruleset, iptables -S, firewall-cmd --list-all, the provider's security groups.",
        )


def _failed(outcome: dict[str, Any]) -> Iterator[Finding]:
    if not outcome["errors"]:
        return
    first, *others = outcome["errors"]
    fix = "Read the message, and check GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME (deploy plan)."
    sizes = [row["bytes"] for run in outcome["runs"] for row in run["rows"]]
    if sizes and max(sizes) <= SMALL:
        fix = "Small messages pass and larger ones do not: compare the MTUs (ping -M do -s 1472 PEER)."
    yield _error(
        "comm-failed",
        first["host"],
        f"the test ended while {first['doing']}: {first['message']}",
        " ".join(
            f"Then {error['host']}: {error['message'].splitlines()[0]}."
            for error in others[:3]
            if not error["echo"]
        ),
        first["fix"] or fix,
    )


def _wrong(run: dict[str, Any], hosts: Hosts) -> Iterator[Finding]:
    bad = [row for row in run["rows"] if row["wrong"]]
    if bad:
        yield _error(
            "comm-sums",
            min(hosts, key=lambda host: hosts[host]["rank"]),
            f"{run['backend']}: {bad[0]['wrong']} of {bad[0]['bytes'] // 4} sums are wrong",
            "A model that is served over such a link gives wrong answers.",
            "Check for ECC errors (nvidia-smi -q -d ECC) and ACS; compare with "
            "engine_env NCCL_P2P_DISABLE=1.",
        )


def _slow(run: dict[str, Any], outcome: dict[str, Any]) -> Iterator[Finding]:
    limit, share = link(run, outcome)
    best = max((row["busbw"] for row in run["rows"]), default=0.0) / GBIT
    # Small sizes measure the latency, not the link.
    if limit and best and best < limit * share and max(row["bytes"] for row in run["rows"]) >= 2**20:
        slowest = min(outcome["hosts"], key=lambda host: host["link_gbit"] or float("inf"))
        yield finding(
            "comm-slow",
            "warning",
            slowest["host"],
            f"{run['backend']} reaches {best:.1f} Gbit/s, and the links have {limit:.0f} Gbit/s",
            "Every token waits for several all-reduces.",
            "Check that it is the fast interface (deploy plan), and check traffic and errors: ip -s link.",
        )


def link(run: Mapping[str, Any], outcome: Mapping[str, Any]) -> tuple[float, float]:
    """What the slowest host's links give a back-end, in Gbit/s (0: not known), and the share to expect."""
    over_rdma = run["backend"] == "nccl" and all(way["rdma"] for way in outcome["nccl"].values())
    key = "rdma_gbit" if over_rdma else "link_gbit"
    rates = [host[key] for host in outcome["hosts"]]
    limit = min(rates) if len(rates) > 1 and all(rates) else 0.0
    if run["backend"] != "nccl":
        return min(limit, GLOO_GBIT), GLOO_SHARE
    return limit, RDMA_SHARE if over_rdma else SOCKET_SHARE


def _way(outcome: dict[str, Any]) -> Iterator[Finding]:
    """Whether NCCL took the RDMA devices that it was given, and GPU memory directly."""
    for node in outcome["hosts"]:
        way = outcome["nccl"].get(node["host"])
        if way is None or not node["rdma_gbit"]:
            continue
        if way["socket"]:
            yield finding(
                "comm-rdma-unused",
                "warning",
                node["host"],
                f"NCCL uses TCP ({way['socket']} channels NET/Socket), though the host has RDMA devices",
                "Over TCP a large model may take hours to load and answers at a few tokens a second.",
                "Check /dev/infiniband and libibverbs in the container, and NCCL_IB_HCA (deploy plan).",
            )
        elif way["rdma"] and way["direct"] < way["rdma"]:
            why = f" ({way['disabled'][0]})" if way["disabled"] else ""
            yield finding(
                "comm-gdr",
                "warning",
                node["host"],
                f"{way['rdma'] - way['direct']} of {way['rdma']} RDMA channels do not use GPUDirect{why}",
                "Without GPUDirect every byte passes through the host's memory on its way to the network.",
                "modprobe nvidia_peermem, or use the open driver (DMA-BUF); check the PCIe distances.",
            )


def _error(id: str, host: str, what: str, why: str, fix: str) -> Finding:
    return finding(id, "error", host, what, why, fix)


def _list(ports: list[int]) -> str:
    return ", ".join(map(str, ports))


# `Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA`; plugins are NET/IBext_v8, NET/AWS Libfabric ...;
# `0(1)` is a device reached through the GPU 1 of this host.
_NET = re.compile(r"-> *\d+\[\w+\].* via NET/(?P<net>[^/]+)/[\d()]+(?P<direct>/GDRDMA)?")
_INSIDE = re.compile(r"-> *\d+\[\w+\].* via (?P<way>P2P|SHM)\b")
_NETWORK = re.compile(r"Using network (?P<name>\S.*)$")
_DEVICES = re.compile(r"NET/(?P<net>\w+) ?: ?Using (?P<list>\[0\].*)$")
_DEVICE = re.compile(r"\[\d+\]([^\s<]+)")
_VERSION = re.compile(r"NCCL version (\S+)")
_NO_DIRECT = re.compile(r"GPU Direct RDMA Disabled for .*$")


def transport(lines: Iterable[str]) -> dict[str, Any]:
    """The ways of one node's channels.

    {version, network, devices, rdma, direct, socket, inside, disabled}: how many channels to other hosts go
    over RDMA, how many of those from GPU memory (GDRDMA), over TCP sockets, and how many stay in the host;
    `devices` are those of `network`; `disabled` why GPUDirect is not used.
    """
    count: Counter[str] = Counter()
    devices: dict[str, list[str]] = {}
    networks, versions, disabled = [], [], []
    for line in lines:
        if match := _NET.search(line):
            count["socket" if match["net"] == "Socket" else "rdma"] += 1
            count["direct"] += bool(match["direct"])
        elif _INSIDE.search(line):
            count["inside"] += 1
        elif match := _NETWORK.search(line):
            networks.append(match["name"].strip())
        elif match := _DEVICES.search(line):
            devices[match["net"]] = _DEVICE.findall(match["list"].partition("; OOB")[0])
        elif match := _NO_DIRECT.search(line):
            disabled.append(match[0])
        elif match := _VERSION.search(line):
            versions.append(match[1])
    network = networks[0] if networks else ""
    return {
        "version": versions[0] if versions else "",
        "network": network,
        "devices": devices.get(network.split("_", maxsplit=1)[0], []),
        **{way: count[way] for way in ("rdma", "direct", "socket", "inside")},
        "disabled": sorted(set(disabled)),
    }
