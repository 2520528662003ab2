"""Reads the checkpoints of services: the model, its adapters and its draft, from folder, hub or catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import FOLDER

from headfirst.common.errors import InputError, NotReadyError
from headfirst.control import demo
from headfirst.control.checkpoints import adapter as adapter_files
from headfirst.control.checkpoints.describe import describe
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.lab_nodes import NODE_SHARE, lab_of, share_dir
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.model import catalogue
from headfirst.decide.model.adapter import AdapterConfig
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan import trust
from headfirst.decide.plan.types import Adapter
from headfirst.decide.plan.weights.decide import adapters, draft_model


def with_companions(cluster: Cluster, *, probe: bool) -> Cluster:
    """The cluster with the adapters and drafts of its services, where they can be read; a bundle's stay.

    With `probe` those on the head are read, too.
    """
    services = (_with_companions(cluster, service, probe=probe) for service in cluster.services)
    return replace(cluster, services=tuple(services))


def read_models(
    cluster: Cluster, bundled: Mapping[str | None, Checkpoint], *, probe: bool
) -> dict[str | None, Checkpoint]:
    """The checkpoint of each service by the service's name; `bundled` are those that a bundle describes."""
    return {
        service.name: bundled.get(service.name) or _describe(cluster, service, probe=probe)
        for service in cluster.services
    }


def _with_companions(cluster: Cluster, service: Service, *, probe: bool) -> Service:
    configs = {}
    for adapter in adapters(service):
        config = service.adapters.get(adapter.name) or _adapter(cluster, service, adapter, probe=probe)
        if config is not None:
            configs[adapter.name] = config
    return replace(service, adapters=configs, draft=service.draft or _draft(cluster, service, probe=probe))


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
    return _of_folder(cluster, service, draft.id, probe=probe)


def folder_here(cluster: Cluster, folder: Path) -> Path | None:
    """A folder of the head as this machine has it; None where it does not."""
    if lab_of(cluster) and folder.is_relative_to(NODE_SHARE):
        return share_dir() / folder.relative_to(NODE_SHARE)
    return folder if folder.is_dir() else None


def _adapter(cluster: Cluster, service: Service, adapter: Adapter, *, probe: bool) -> AdapterConfig | None:
    if adapter.from_hub:
        return adapter_files.read_hub(adapter.id, adapter.source, revision=adapter.revision)
    folder = folder_here(cluster, Path(adapter.id))
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
        folder = Path(settings.model)
        return _of_folder(cluster, service, str(folder), probe=probe) or _by_name(folder)
    try:
        return describe(service.model_id, settings.model_source, revision=trust.revision(settings))
    except InputError as error:
        error.where = error.where or service.given.get("model")
        raise


def _of_folder(cluster: Cluster, service: Service, folder: str, *, probe: bool) -> Checkpoint | None:
    """The model in a folder of the head: read here where it is shared, or over SSH; None without `probe`."""
    here = folder_here(cluster, Path(folder))
    if here is not None:
        return describe(folder, FOLDER.name, folder=here)
    if not probe:
        return None
    from headfirst.control.deployment.hosts.head_folder import describe_on_head

    return describe_on_head(host_access(cluster)[service.hosts[0].name], folder)


def _by_name(folder: Path) -> Checkpoint:
    """The model of the catalogue with the folder's name. NotReadyError where there is none."""
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
