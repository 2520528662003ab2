"""Ports that engines take beside those of the inventory, compared with all others of the hosts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from headfirst.decide import engines
from headfirst.decide.cluster import ports
from headfirst.decide.cluster.ports import PortUse
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.plan.types import Node, PlannedReplica, PlannedService


def refuse(cluster: Cluster, services: Sequence[PlannedService]) -> None:
    """InputError for a port that two programs of a host would have."""
    uses: dict[str, list[PortUse]] = {}
    for service, planned in zip(cluster.services, services, strict=True):
        for replica in planned.replicas:
            role_service = service.of_role(replica.role)
            for node in replica.nodes:
                uses.setdefault(node.host, []).extend(_of_rank(role_service, planned, replica, node))
    ports.refuse(cluster, uses)


def _of_rank(
    service: Service, planned: PlannedService, replica: PlannedReplica, node: Node
) -> Iterator[PortUse]:
    """Those that are not the first ones: the inventory's settings name these."""
    listed = replica.rendezvous_ports
    end = len(listed) - (planned.sized(replica).data_parallel if replica.transfer_port else 0)
    after = {
        "dist_port": listed[1:end] if node.rank == 0 else [],
        "engine_port": node.more_ports,
        "kv_transfer_port": listed[end + 1 :],
    }
    for setting, numbers in after.items():
        yield ports.of_service(service, f"the ports after {setting}", numbers, setting, replica.index)
    engine = engines.get(planned.engine, planned.engine_version)
    for name, value in engine.check_arguments(service.settings.engine_args).values.items():
        if name.endswith("_port") and isinstance(value, int) and value > 0:
            flag = "--" + name.replace("_", "-")
            use = ports.of_service(service, f"{flag} in engine_args", [value], "", replica.index)
            yield replace(use, where=service.given.get("engine_args"))
