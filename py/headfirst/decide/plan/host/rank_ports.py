"""How the ports of a host's ranks are closed to strangers. Pure.

Ranks listen, without authentication, at ports that the kernel chooses. In a slice of systemd of their own a
rule by cgroup closes all of them, and no port of another program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ansible_collections.headfirst.serving.plugins.module_utils.host_cgroups import OBSTACLES

from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.plan.types import PlannedService, Proxy, RankPorts

SLICE = "headfirst-ranks.slice"
# Where containers have their addresses; ranks have the host's.
_INNER = ("bridge", "veth")


def slice_of(host: Host) -> str | None:
    """The slice of the ranks on a host; None where rules cannot be by cgroup, or the host was not asked."""
    return SLICE if host.cgroup_obstacle == "" else None


def plan(cluster: Cluster, services: Sequence[PlannedService], proxy: Proxy | None) -> list[RankPorts]:
    """One for each host that runs ranks or may have to."""
    served = {} if proxy else _served(services)  # people come through the proxy
    addresses_of = {host.name: _addresses(host) for host in cluster.nodes}
    # What several hosts have, as 192.168.122.1, is the address of none.
    shared = Counter(address for addresses in addresses_of.values() for address in addresses)
    rank_ports = []
    for host in cluster.nodes:
        chosen = slice_of(host)
        ports = sorted(set(served.get(host.name, []))) if chosen else []
        others = [
            address for name, addresses in addresses_of.items() if name != host.name for address in addresses
        ]
        rank_ports.append(
            RankPorts(
                host=host.name,
                slice=chosen,
                served=ports,
                peers=[address for address in others if shared[address] == 1] if chosen else [],
                reason=_reason(host, ports),
            )
        )
    return rank_ports


def _served(services: Sequence[PlannedService]) -> dict[str, list[int]]:
    """By host: the API's ports of each rank 0, also of one that a spare may run."""
    replicas = [replica for service in services for replica in service.replicas]
    replicas += [standby.replica for service in services for standby in service.standbys]
    ports: dict[str, list[int]] = {}
    for replica in replicas:
        ports.setdefault(replica.nodes[0].host, []).append(replica.engine_port)
    return ports


def _addresses(host: Host) -> list[str]:
    """All from which a rank may connect: NCCL uses several interfaces where none is set."""
    nics = host.network.nics if host.network else ()
    return [address for nic in nics if nic.kind not in _INNER for address in nic.addresses]


def _reason(host: Host, served: Sequence[int]) -> str:
    if host.cgroup_obstacle is None:
        return "ports of ranks: --probe reads whether the host can close all of them to other hosts"
    if host.cgroup_obstacle:
        why = OBSTACLES[host.cgroup_obstacle]
        return f"ports of ranks: those that the kernel chooses stay open to everybody: {why}"
    but = f", but {', '.join(map(str, served))} (API)" if served else ""
    return f"ports of ranks: all{but} are closed to other hosts, by the cgroup {SLICE}"
