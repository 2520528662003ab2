"""From files to Plan: read the inventory, ask the hosts, read the checkpoints, plan. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headfirst.control.checkpoints import user_catalogue
from headfirst.control.deployment import api_keys
from headfirst.control.deployment.checkpoints import read_models, with_companions
from headfirst.control.deployment.kept_answers import Images, seen, with_kept
from headfirst.control.deployment.lab_nodes import with_lab_facts
from headfirst.control.deployment.running.options import BundleRequest
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan import kept
from headfirst.decide.plan.build import build
from headfirst.decide.plan.types import Plan

if TYPE_CHECKING:
    from headfirst.control.deployment.bundled import Bundled


@dataclass(frozen=True)
class Prepared:
    """A cluster and what was decided for it."""

    cluster: Cluster
    plan: Plan
    checkpoints: Mapping[str | None, Checkpoint]  # by name of the service
    bundle: Bundled | None = None  # signature verified, files not yet proven

    def answered(self, cluster: Cluster) -> Prepared:
        """The plan of the same cluster with what its images answered."""
        return replace(self, cluster=cluster, plan=build(cluster, self.checkpoints))

    def replanned(self, service: Service, **settings: Any) -> Plan:
        """The plan with other settings of a service. InputError where it refuses them."""
        return build(_with(self.cluster, service, **settings), self.checkpoints)


def prepare(
    inventories: Sequence[Path],
    extra_vars: Sequence[str],
    *,
    probe: bool,
    rates: bool = False,
    ports: bool = False,
    limit: str | None = None,
    service: str | None = None,
    engine_args: Mapping[str | None, Sequence[str]] | None = None,
    model: Mapping[str, Any] | None = None,
    bundle: BundleRequest | None = None,
    online: bool = False,
) -> Prepared:
    """Read the inventory and make the plan; with `probe`, ask the hosts for what the inventory omits.

    `rates`: ask also where only the estimate of the weights' time would gain; `ports`: also for how the ports
    of ranks can be closed, which containers that are started depend on. A `limit` that leaves no host
    is refused here, before any work. `service`: the run acts on the hosts of this service, and of what all
    services share. `engine_args`, by the service's name, take the place of the inventory's. `model`: settings
    that take the place of those of every service, of which an inventory then need not name a model.
    `bundle`, or else the inventory's, has the models' descriptions and other sources; `online` ignores the
    inventory's.
    """
    user_catalogue.load()
    cluster = with_lab_facts(load(inventories, extra_vars, limit, needs_model=not model))
    api_keys.read(cluster)  # a file that cannot be used is refused before any work
    if chosen := cluster.whole_service(service):
        cluster = cluster.of_service(chosen, *cluster.shared_hosts)
    for name, arguments in (engine_args or {}).items():
        cluster = _with(cluster, cluster.service(name), engine_args=list(arguments))
    if model:
        for changed in cluster.services:
            cluster = _with(cluster, changed, **model, served_model_name=changed.name)
    bundled = None
    if bundle or (cluster.settings.bundle and not online):
        from headfirst.control.deployment.bundled import looked_at

        bundled = looked_at(bundle, cluster, extra_vars)
        cluster = bundled.applied(cluster)
    if probe:
        from headfirst.control.deployment.hosts.probe import lacks_facts, probe_hosts

        unknown = ports and any(host.cgroup_obstacle is None for host in cluster.nodes)
        if rates or unknown or lacks_facts(cluster):
            cluster = probe_hosts(cluster, extra_vars)
    expected = bundled.images(cluster) if bundled else {} if probe else seen(cluster)
    present: Images = {}
    if probe:  # over SSH, which a plan without hosts does not need
        from headfirst.control.deployment.hosts.running import images

        present = images(cluster)
    cluster = with_kept(cluster, {**expected, **{name: id for name, id in present.items() if id}})
    cluster = with_companions(cluster, probe=probe)
    checkpoints = read_models(cluster, bundled.checkpoints(cluster) if bundled else {}, probe=probe)
    plan = build(cluster, checkpoints)
    by_default = [service.name for service in plan.services if kept.depends_on_running(cluster, service)]
    if probe and by_default:
        from headfirst.control.deployment.hosts.running import with_running

        cluster = with_running(cluster, by_default)
        plan = build(cluster, checkpoints)
    return Prepared(cluster, plan, checkpoints, bundled)


def _with(cluster: Cluster, service: Service, **settings: Any) -> Cluster:
    """The cluster with other settings of a service."""
    changed = replace(service, settings=service.settings.model_copy(update=settings))
    services = (changed if other.name == service.name else other for other in cluster.services)
    return replace(cluster, services=tuple(services))
