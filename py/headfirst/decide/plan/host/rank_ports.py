"""How the ports of a host's ranks are closed to strangers. Pure.

Ranks listen, without authentication, at ports that the kernel chooses. In a slice of systemd of their own a
rule by cgroup closes all of them, and no port of another program. Elsewhere the ports that are known are
closed by number, and the plan names those that stay open.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Sequence

from ansible_collections.headfirst.serving.plugins.module_utils.host_cgroups import OBSTACLES

from headfirst.decide import engines
from headfirst.decide.cluster import ports
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.engines import mooncake
from headfirst.decide.plan.types import Node, PlannedReplica, PlannedService, Proxy, RankPorts

SLICE = "headfirst-ranks.slice"
# From which the kernel chooses (net.ipv4.ip_local_port_range); other programs have ports there too.
_EPHEMERAL = range(32768, 61000)
# Where containers have their addresses; ranks have the host's.
_INNER = ("bridge", "veth")
_Rank = tuple[PlannedService, PlannedReplica, Node]


def slice_of(host: Host) -> str | None:
    """The slice of the ranks on a host; None where rules cannot be by cgroup, or the host was not asked."""
    return SLICE if host.cgroup_obstacle == "" else None


def plan(cluster: Cluster, services: Sequence[PlannedService], proxy: Proxy | None) -> list[RankPorts]:
    """One for each host that runs ranks or may have to."""
    addresses_of = {host.name: _addresses(host) for host in cluster.nodes}
    # What several hosts have, as 192.168.122.1, is the address of none.
    shared = Counter(address for addresses in addresses_of.values() for address in addresses)
    rank_ports = []
    for host in cluster.nodes:
        chosen = slice_of(host)
        ranks = _ranks_on(host, services)
        # People come through the proxy, where there is one, and through the router of a divided service.
        open_to_all = [replica for _, replica, node in ranks if node.rank == 0 and not replica.role]
        served = [] if proxy else [replica.engine_port for replica in open_to_all]
        others = [
            address for name, addresses in addresses_of.items() if name != host.name for address in addresses
        ]
        closed = _closed(cluster, host, ranks)
        exposed = _exposed(host, ranks, closed)
        admits = cluster.settings.monitoring_from and chosen and host.firewall
        rank_ports.append(
            RankPorts(
                host=host.name,
                slice=chosen,
                served=sorted(set(served)) if chosen else [],
                peers=[address for address in others if shared[address] == 1] if chosen else [],
                closed=closed,
                exposed=[] if chosen and host.firewall else exposed,
                reason=_reason(host, served, closed, exposed)
                + ("; those with metrics are open to monitoring_from" if admits else ""),
            )
        )
    return rank_ports


def _ranks_on(host: Host, services: Sequence[PlannedService]) -> list[_Rank]:
    """The ranks of a host, and those that it has as a spare once it takes over."""
    return [
        (service, replica, node)
        for service in services
        for replica in (*service.replicas, *(standby.replica for standby in service.standbys))
        for node in replica.nodes
        if node.host == host.name
    ]


def _closed(cluster: Cluster, host: Host, ranks: Sequence[_Rank]) -> list[str]:
    """Ports and ranges, closed by number, at which ranks meet, and give their KV cache away."""
    closed: dict[str, None] = {}
    used_ports = {port for use in ports.of_host(cluster, host) for port in use.ports}
    used_ports |= {replica.engine_port for _, replica, _ in ranks}
    for _, replica, node in ranks:
        # A rank that is alone meets nobody. vLLM's data-parallel groups give it away on each host.
        if replica.transfer_port or (node.rank == 0 and len(replica.nodes) > 1):
            closed |= dict.fromkeys(map(str, replica.rendezvous_ports))
        if replica.role and node.rank == 0:
            closed[str(replica.engine_port)] = None
        if slice_of(host) is None:
            for span in mooncake.ports(node.container.command, node.container.environment):
                closed |= dict.fromkeys(_without(span, used_ports))
    return list(closed)


def _exposed(host: Host, ranks: Sequence[_Rank], closed: Sequence[str]) -> list[str]:
    """Ports and ranges that stay open to everybody where there are no rules by cgroup."""
    spans = dict.fromkeys(
        engines.get(service.engine, service.engine_version).ports_alone
        for service, replica, _ in ranks
        if len(replica.nodes) == 1
    )
    by_person = host.closed_ports if _has_rules(host) else ()
    chosen = [text for span in (*spans, _EPHEMERAL) for text in _without(span, by_person)]
    return chosen if _has_rules(host) else [*closed, *chosen]


def _without(span: range, used_ports: Collection[int]) -> list[str]:
    """The parts of a range that have none of these ports."""
    ends = [span.start - 1, *sorted(port for port in used_ports if port in span), span.stop]
    gaps = [(low + 1, high - 1) for low, high in itertools.pairwise(ends) if high - low > 1]
    return [str(low) if low == high else f"{low}-{high}" for low, high in gaps]


def _has_rules(host: Host) -> bool:
    return host.firewall and host.cgroup_obstacle != "no-rules"


def _addresses(host: Host) -> list[str]:
    """All from which a rank may connect: NCCL uses several interfaces where none is set."""
    nics = host.network.nics if host.network else ()
    return [address for nic in nics if nic.kind not in _INNER for address in nic.addresses]


def _reason(host: Host, served: Sequence[int], closed: Sequence[str], exposed: Sequence[str]) -> str:
    if host.firewall and host.cgroup_obstacle is None:
        unknown = "whether the host can close all of them to other hosts is not known"
        return f"ports of ranks: {unknown}. `deploy plan --probe` reads it"
    if host.firewall and not host.cgroup_obstacle:
        but = f", but {', '.join(map(str, sorted(set(served))))} (API)" if served else ""
        return f"ports of ranks: all{but} are closed to other hosts, by the cgroup {SLICE}"
    why = OBSTACLES[host.cgroup_obstacle or ""] if host.firewall else "host_tuning_firewall is false"
    numbers = (
        [f"{', '.join(closed)} are closed to other hosts by number"] if closed and _has_rules(host) else []
    )
    if not exposed:
        return f"ports of ranks: {'; '.join([*numbers, 'none is open to everybody'])}"
    advice = "put the ranks on a separate network"
    if _has_rules(host):
        advice += ", or, if no other program uses these ports, add them to host_tuning_closed_ports"
    opened = f"{', '.join(exposed)} stay open to everybody: {why}. Next: {advice}."
    return f"ports of ranks: {'; '.join([*numbers, opened])}"
