"""Inventory to plan: read, describe the model, decide. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import FOLDER

from headfirst.common.errors import InputError, NotReadyError
from headfirst.control import demo
from headfirst.control.checkpoints import adapter as adapter_files
from headfirst.control.checkpoints import user_catalogue
from headfirst.control.checkpoints.describe import describe
from headfirst.control.deployment import api_keys
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.lab_nodes import NODE_SHARE, lab_of, share_dir, with_lab_facts
from headfirst.control.deployment.running.options import BundleRequest
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.model import catalogue
from headfirst.decide.model.adapter import AdapterConfig
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan import kept, trust
from headfirst.decide.plan.build import build
from headfirst.decide.plan.types import Adapter, Plan
from headfirst.decide.plan.weights.decide import adapters, draft_model

if TYPE_CHECKING:
    from headfirst.control.deployment.bundled import Bundled


@dataclass(frozen=True)
class Prepared:
    """A cluster and what was decided for it."""

    cluster: Cluster
    plan: Plan
    checkpoints: Mapping[str | None, Checkpoint]  # by name of the service
    bundle: Bundled | None = None  # signature verified, files not yet proven

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
    bundle: BundleRequest | None = None,
    online: bool = False,
) -> Prepared:
    """Read the inventory and make the plan; with `probe`, ask the hosts for what the inventory omits.

    `rates`: ask also where only the estimate of the weights' time would gain; `ports`: also for how the ports
    of ranks can be closed, which containers that are started depend on. A `limit` that leaves no host
    is refused here, before any work. `service`: the run acts on the hosts of this service, and of what all
    services share. `engine_args`, by the service's name, take the place of the inventory's. `bundle`, or else
    the inventory's, has the models' descriptions and other sources; `online` ignores the inventory's.
    """
    user_catalogue.load()
    cluster = with_lab_facts(load(inventories, extra_vars, limit))
    api_keys.read(cluster)  # a file that cannot be used is refused before any work
    if chosen := cluster.whole_service(service):
        cluster = cluster.of_service(chosen, *cluster.shared_hosts)
    for name, arguments in (engine_args or {}).items():
        cluster = _with(cluster, cluster.service(name), engine_args=list(arguments))
    sources = None
    if bundle or (cluster.settings.bundle and not online):
        from headfirst.control.deployment.bundled import looked_at

        sources = looked_at(bundle, cluster, extra_vars)
        cluster = sources.applied(cluster)
    if probe:
        from headfirst.control.deployment.hosts.probe import lacks_facts, probe_hosts

        unknown = ports and any(host.cgroup_obstacle is None for host in cluster.nodes)
        if rates or unknown or lacks_facts(cluster):
            cluster = probe_hosts(cluster, extra_vars)
    services = tuple(_with_companions(cluster, service, probe=probe) for service in cluster.services)
    cluster = replace(cluster, services=services)
    checkpoints = {
        service.name: (sources.checkpoint(service) if sources else None)
        or _describe(cluster, service, probe=probe)
        for service in cluster.services
    }
    plan = build(cluster, checkpoints)
    by_default = [service.name for service in plan.services if kept.depends_on_running(cluster, service)]
    if probe and by_default:
        from headfirst.control.deployment.hosts.running import with_running

        cluster = with_running(cluster, by_default)
        plan = build(cluster, checkpoints)
    return Prepared(cluster, plan, checkpoints, sources)


def _with(cluster: Cluster, service: Service, **settings: Any) -> Cluster:
    """The cluster with other settings of a service."""
    changed = replace(service, settings=service.settings.model_copy(update=settings))
    services = (changed if other.name == service.name else other for other in cluster.services)
    return replace(cluster, services=tuple(services))


def _with_companions(cluster: Cluster, service: Service, *, probe: bool) -> Service:
    """The service with its adapters and its draft, where they can be read; with `probe` on the head too."""
    known = {}
    for adapter in adapters(service.settings, served_name=service.served_model_name, where=None):
        config = service.adapters.get(adapter.name) or _adapter(cluster, service, adapter, probe=probe)
        if config is not None:
            known[adapter.name] = config
    return replace(service, adapters=known, draft=service.draft or _draft(cluster, service, probe=probe))


def _draft(cluster: Cluster, service: Service, *, probe: bool) -> Checkpoint | None:
    """The checkpoint of draft_model; None where there is none, or neither hub nor catalogue answers."""
    draft = draft_model(service.settings, None)
    if draft is None:
        return None
    if draft.from_hub:
        try:
            return describe(draft.id, draft.source, revision=draft.revision)
        except NotReadyError:
            return None
    folder = _here(cluster, Path(draft.id))
    if folder is not None:
        return describe(draft.id, "path", folder=folder)
    if not probe:
        return None
    from headfirst.control.deployment.hosts.head_folder import describe_on_head

    return describe_on_head(host_access(cluster)[service.hosts[0].name], draft.id)


def _here(cluster: Cluster, folder: Path) -> Path | None:
    """A folder of the head as this machine has it; None where it does not."""
    if lab_of(cluster) and folder.is_relative_to(NODE_SHARE):
        return share_dir() / folder.relative_to(NODE_SHARE)
    return folder if folder.is_dir() else None


def _adapter(cluster: Cluster, service: Service, adapter: Adapter, *, probe: bool) -> AdapterConfig | None:
    if adapter.from_hub:
        return adapter_files.read_hub(adapter.id, adapter.source, revision=adapter.revision)
    folder = _here(cluster, Path(adapter.id))
    if folder is not None:
        return adapter_files.read_folder(folder)
    if not probe:
        return None
    from headfirst.control.deployment.hosts.head_folder import adapter_on_head

    return adapter_on_head(host_access(cluster)[service.hosts[0].name], adapter.id)


def _describe(cluster: Cluster, service: Service, *, probe: bool) -> Checkpoint:
    """The checkpoint of a service, from its folder, its hub or the catalogue."""
    settings = service.settings
    if settings.model_source == "demo":
        with demo.checkpoint(service.model_id) as folder:
            return describe(service.model_id, "path", folder=folder)
    if settings.source is FOLDER:
        return _describe_path(cluster, service, Path(settings.model), probe=probe)
    try:
        return describe(service.model_id, settings.model_source, revision=trust.revision(settings))
    except InputError as error:
        error.where = error.where or service.given.get("model")
        raise


def _describe_path(cluster: Cluster, service: Service, folder: Path, *, probe: bool) -> Checkpoint:
    """A folder on the head: read here where it is shared, asked over SSH, or known by its name."""
    here = _here(cluster, folder)
    if here is not None:
        return describe(str(folder), "path", folder=here)
    if probe:
        from headfirst.control.deployment.hosts.head_folder import describe_on_head

        return describe_on_head(host_access(cluster)[service.hosts[0].name], str(folder))
    for id in catalogue.ids():
        if id.rpartition("/")[2] == folder.name:
            note = f"{folder} is on the head; its name suggests {id} (--probe reads it)"
            checkpoint = catalogue.lookup(id, note=note)
            if checkpoint is not None:
                return checkpoint.model_copy(update={"id": str(folder)})
    raise NotReadyError(
        f"the model folder {folder} is on the head and its name is not in the catalogue",
        hint="Read it over SSH: deploy plan --probe.",
    )
