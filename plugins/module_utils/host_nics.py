"""Network interfaces and the kernel's way to each peer, as iproute2 reports them. Python 3.8+."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource


def nics(source: HostSource) -> t.List[t.Dict[str, t.Any]]:
    """Every interface but loopback: {name, kind, addresses, mtu, state, mbit}.

    `kind` is "physical" or what the kernel calls a virtual one (bridge, bond, vlan, veth, tun, vxlan ...);
    `addresses` are IPv4; `mbit` is 0 where the driver does not report it.
    """
    listed = json.loads(source.run("ip", "-j", "-d", "address") or "[]")
    return [_nic(source, interface) for interface in listed if interface.get("link_type") != "loopback"]


def routes(source: HostSource, peers: t.List[str]) -> t.Dict[str, t.Dict[str, str]]:
    """Peer → {nic, source}: the interface and the address that packets to it leave with."""
    # One process for all: with a process a peer, a hundred hosts would start ten thousand.
    commands = "".join(f"route get {peer}\n" for peer in peers)
    told = source.run("ip", "-force", "-j", "-4", "-batch", "-", stdin=commands) if peers else ""
    ways = [way for line in told.splitlines() for way in json.loads(line)]
    return {way["dst"]: {"nic": way.get("dev", ""), "source": way.get("prefsrc", "")} for way in ways}


def _nic(source: HostSource, interface: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
    name = interface["ifname"]
    return {
        "name": name,
        "kind": interface.get("linkinfo", {}).get("info_kind", "physical"),
        "addresses": [info["local"] for info in interface["addr_info"] if info["family"] == "inet"],
        "mtu": interface["mtu"],
        "state": interface["operstate"],
        # "" or -1 for one that is down, or whose driver does not report it.
        "mbit": max(0, int(source.read(f"/sys/class/net/{name}/speed") or 0)),
    }
