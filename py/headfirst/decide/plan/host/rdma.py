"""RDMA ports that ranks on several hosts should use: active, alike, near the GPUs, the same everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headfirst.common.errors import InputError
from headfirst.decide.hardware.facts import Hca, NetworkFacts, Port

# Names of drivers, and what does not end in a number: devices are numbered (mlx5_0, bnxt_re1, ibp12s0).
_BEGINNING = re.compile(r"mlx[45]|hfi1|.*\D")
# As `nvidia-smi topo -m` calls them, from near to far.
DISTANCES = ["PIX", "PXB", "PHB", "NODE", "SYS"]


@dataclass(frozen=True)
class Agreed:
    """Names of ports for NCCL_IB_HCA by host (all or none are empty), and why these."""

    ports: Mapping[str, tuple[str, ...]]
    reason: str


def agree(known: Mapping[str, NetworkFacts]) -> Agreed:
    """Choose for hosts by name; NCCL hangs where one host brings other ports than its peers."""
    active = {host: [port for hca in facts.hcas for port in _active(hca)] for host, facts in known.items()}
    without = [host for host, ports in active.items() if not ports]
    if without:
        return no_rdma(known, f"no active RDMA port on {', '.join(without)}")
    links = [
        link for link in ("InfiniBand", "Ethernet") if all(_of(ports, link) for ports in active.values())
    ]
    if not links:
        return no_rdma(known, "some hosts have InfiniBand and some have RoCE")
    best = {host: _nearest(_fastest(_of(ports, links[0]))) for host, ports in active.items()}
    names = {host: tuple(name for name, _, _ in ports) for host, ports in best.items()}
    speed = min(port.gbit for ports in best.values() for _, _, port in ports)
    what = (
        f"active {'RoCE' if links[0] == 'Ethernet' else links[0]} at {speed:.0f} Gbit/s, nearest to the GPUs"
    )
    if len(set(names.values())) == 1:
        return Agreed(names, f"{what}, the same on all hosts")
    common = tuple(
        name for name in next(iter(names.values())) if all(name in selected for selected in names.values())
    )
    if common:
        return Agreed(
            dict.fromkeys(known, common), f"{what}, and the hosts differ: only these are on all of them"
        )
    if len({len(selected) for selected in names.values()}) == 1:
        return Agreed(names, f"{what}; the hosts have the same number with other names")
    listed = "; ".join(f"{host}: {', '.join(selected)}" for host, selected in names.items())
    return no_rdma(known, f"the hosts have no set of ports in common ({listed}); write hca= for each")


def follow(known: Mapping[str, NetworkFacts], stated: Mapping[str, str]) -> Agreed:
    """The ports of probed hosts whose peers have an `hca` of the inventory, by host in `stated`.

    Raises InputError where a host has no such port, or the peers have different values.
    """
    peer, spec = next(iter(stated.items()))
    hint = "Write hca= for every host of the replica."
    if len(set(stated.values())) > 1:
        listed = ", ".join(f"{hca} for {name}" for name, hca in stated.items())
        raise InputError(f"hca= differs ({listed}), and {', '.join(known)} has none", hint=hint)
    ports = {host: tuple(name for name, _ in named(facts, exact(spec))) for host, facts in known.items()}
    for host in (host for host, selected in ports.items() if not selected):
        raise InputError(f"{host} has no active RDMA port that hca={spec} of {peer} selects", hint=hint)
    return Agreed(ports, f"hca={spec} is set for {', '.join(stated)}, and all ranks use the same")


def no_rdma(hosts: Iterable[str], reason: str) -> Agreed:
    """No RDMA on any of these hosts."""
    return Agreed(dict.fromkeys(hosts, ()), reason)


def named(facts: NetworkFacts, spec: str) -> list[tuple[str, Port]]:
    """Active ports that a value of NCCL_IB_HCA selects: names or prefixes, `=` exact, `^` all but these."""
    words = spec.lstrip("^=").split(",")
    exact = "=" in spec[:2]

    def selected(hca: Hca, name: str) -> bool:
        hit = any(word in (hca.name, name) or (not exact and name.startswith(word)) for word in words)
        return hit != spec.startswith("^")

    return [(name, port) for hca in facts.hcas for name, hca, port in _active(hca) if selected(hca, name)]


def gbit(facts: NetworkFacts | None, spec: str | None) -> float:
    """Gbit/s of all ports together that the value selects; 0 where it is not set, or nothing was read."""
    return sum(port.gbit for _, port in named(facts, spec)) if facts and spec else 0.0


def exact(spec: str) -> str:
    """`hca` of the inventory for NCCL_IB_HCA: whole names get `=`, without which mlx5_1 takes mlx5_10 too.

    Beginnings of names (mlx5, bnxt_re) stay what they are. Source: NCCL's documentation, NCCL_IB_HCA.
    """
    words = spec.removeprefix("^").split(",")
    if spec == "none" or "=" in spec[:2] or any(_BEGINNING.fullmatch(word) for word in words):
        return spec
    return f"^={spec[1:]}" if spec.startswith("^") else f"={spec}"


def roce_v2(port: Port) -> dict[int, str]:
    """Index → IPv4 of the port's GIDs that RoCE v2 can route; link-local addresses are none."""
    return {
        gid.index: gid.address
        for gid in port.gids
        if gid.type == "RoCE v2" and gid.address and not gid.address.startswith("169.254.")
    }


def _active(hca: Hca) -> list[tuple[str, Hca, Port]]:
    """Active ports by NCCL's names: the device alone, or device:port where it has several."""
    return [
        (hca.name if len(hca.ports) == 1 else f"{hca.name}:{port.number}", hca, port)
        for port in hca.ports
        if port.state == "ACTIVE"
    ]


Ports = list[tuple[str, Hca, Port]]


def _of(ports: Ports, link: str) -> Ports:
    """Ports of one kind; RoCE needs a GID that can be routed."""
    return [
        (name, hca, port)
        for name, hca, port in ports
        if port.link == link and (link == "InfiniBand" or roce_v2(port))
    ]


def _fastest(ports: Ports) -> Ports:
    """A slower port beside the fast ones is for management or storage."""
    fastest = max(port.gbit for _, _, port in ports)
    return [(name, hca, port) for name, hca, port in ports if port.gbit == fastest]


def _nearest(ports: Ports) -> Ports:
    """Ports below a PCIe switch that has a GPU too, where there are any; else the nearest that there are."""
    nearest = min(_distance(hca) for _, hca, _ in ports)
    return [(name, hca, port) for name, hca, port in ports if _distance(hca) == nearest]


def _distance(hca: Hca) -> int:
    """To the nearest GPU; one switch more on the way (PXB) does not matter."""
    return max(1, min((DISTANCES.index(distance) for distance in hca.gpu_distances), default=0))
