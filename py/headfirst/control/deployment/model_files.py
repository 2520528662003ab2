"""The small files of a service's model and of its draft, as the ranks will have them in their folders."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import HUBS

from headfirst.control import demo
from headfirst.control.checkpoints import small_files
from headfirst.control.checkpoints.small_files import Files
from headfirst.control.deployment.checkpoints import folder_here
from headfirst.control.deployment.hosts.access import host_access
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.plan import trust
from headfirst.decide.plan.types import PlannedService


def model_files(cluster: Cluster, planned: PlannedService) -> Files:
    """The files by folder. HeadfirstError where they cannot be read."""
    service = cluster.service(planned.name)
    model, draft = _model(cluster, service), planned.draft_model
    if planned.convert_to_bf16:
        model = small_files.converted(model)
    files = {planned.weights.directory: model}
    if draft:
        files[draft.directory] = _read(cluster, service, draft.source, draft.id, draft.revision)
    return files


@cache
def _of_hub(source: str, id: str, revision: str | None) -> dict[str, bytes]:
    """Read once in a run: a plan is made before and after the answers of the image, and rehearsed."""
    return small_files.of_hub(source, id, revision)


def _model(cluster: Cluster, service: Service) -> Mapping[str, bytes]:
    settings = service.settings
    if settings.model_source == "demo":
        with demo.checkpoint(service.model_id) as folder:
            return small_files.of_folder(folder)
    return _read(cluster, service, settings.model_source, service.model_id, trust.revision(settings))


def _read(
    cluster: Cluster, service: Service, source: str, id: str, revision: str | None
) -> Mapping[str, bytes]:
    """Those of a hub, or of a folder of the head, read here where this machine has it, too."""
    if source in HUBS:
        return _of_hub(source, id, revision)
    here = folder_here(cluster, Path(id))
    if here is not None:
        return small_files.of_folder(here)
    from headfirst.control.deployment.hosts.head_folder import files_on_head

    return files_on_head(host_access(cluster)[service.hosts[0].name], id)
