"""The packet filters of a host: role host_tuning's table, ufw, firewalld, those of others. Python 3.8+."""

from __future__ import annotations

import ipaddress
import json
import re
import socket
import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

TABLE = ("inet", "headfirst")
ZONE = "headfirst"
UFW_CONF = "/etc/ufw/ufw.conf"
# As `ufw show added` prints the rules that the role adds.
UFW_RULE = re.compile(r"ufw allow from (\S+) comment 'headfirst'")


def normal_peers(peers: t.List[str]) -> t.List[str]:
    """Addresses and networks in one notation, in order; ValueError for what is neither."""
    networks = {ipaddress.ip_network(peer.strip(), strict=False) for peer in peers}
    ordered = sorted(networks, key=lambda net: (net.version, net))
    return [str(net.network_address) if net.num_addresses == 1 else str(net) for net in ordered]


def normal_ports(ports: t.List[str]) -> t.List[t.Tuple[int, int]]:
    """First and last port of each entry ("30000" or "32768-60999"), in order; ValueError for others."""
    ranges = []
    for text in ports:
        first, dash, last = text.replace(" ", "").partition("-")
        low, high = int(first), int(last if dash else first)
        if not 1 <= low <= high <= 65535:
            raise ValueError(f"{text!r} is not a port or a range of ports")
        ranges.append((low, high))
    return sorted(set(ranges))


def sources(addresses: t.Iterable[str]) -> t.Dict[str, str]:
    """The address of this host that connections to each address come from; none where there is no route."""
    local_addresses = {}
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((address, 9))  # sends nothing
            except OSError:
                continue
            local_addresses[address] = str(probe.getsockname()[0])
    return local_addresses


def gather(source: HostSource, peers: t.List[str]) -> t.Dict[str, t.Any]:
    """Keys digest (of the rules in the kernel), ufw and firewalld (active, missing, surplus), dropping."""
    return {
        "digest": digest(source.run("nft", "list", "table", *TABLE)),
        "ufw": ufw(source, peers),
        "firewalld": firewalld(source, peers),
        "dropping": dropping(source.run("nft", "-j", "list", "chains")),
    }


def digest(listing: str) -> str:
    """The digest in the comment of the role's rule; "" where a rule is about a cgroup that is gone."""
    if re.search(r"socket cgroupv2 level \d+ \d", listing):  # a path is in quotation marks
        return ""
    match = re.search(r'comment "headfirst (\w+)"', listing)
    return match.group(1) if match else ""


def ufw(source: HostSource, peers: t.List[str]) -> t.Dict[str, t.Any]:
    """Whether ufw filters here, the peers it does not let in yet, and those it need not let in any more."""
    active = re.search(r"^ENABLED=yes", source.read(UFW_CONF), re.MULTILINE) is not None
    added = UFW_RULE.findall(source.run("ufw", "show", "added")) if active else []
    return _difference(active, added, peers)


def firewalld(source: HostSource, peers: t.List[str]) -> t.Dict[str, t.Any]:
    """The same of firewalld, where the role has a zone of its own."""
    active = source.run("firewall-cmd", "--state").strip() == "running"
    added = source.run("firewall-cmd", f"--zone={ZONE}", "--list-sources").split() if active else []
    return _difference(active, added, peers)


def _difference(active: bool, added: t.List[str], peers: t.List[str]) -> t.Dict[str, t.Any]:
    return {
        "active": active,
        "missing": [peer for peer in peers if active and peer not in added],
        "surplus": [peer for peer in added if peer not in peers],
    }


def dropping(chains: str) -> t.List[str]:
    """Chains of nftables that drop what comes in by default, as "family table chain"."""
    ruleset = json.loads(chains or "{}").get("nftables", [])
    listed = [nft_object["chain"] for nft_object in ruleset if "chain" in nft_object]
    return [
        f"{chain['family']} {chain['table']} {chain['name']}"
        for chain in listed
        if chain.get("hook") == "input" and chain.get("policy") == "drop"
    ]
