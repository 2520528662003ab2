"""The small files of a service's model and of its draft, as the ranks will have them in their folders."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from headfirst.control import demo
from headfirst.control.checkpoints import small_files
from headfirst.control.checkpoints.small_files import Files
from headfirst.control.deployment.checkpoints import folder_here
from headfirst.control.deployment.hosts.access import host_access
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.plan import trust
from headfirst.decide.plan.types import Companion, PlannedService


def model_files(cluster: Cluster, planned: PlannedService) -> Files:
    """The files by folder. HeadfirstError where they cannot be read."""
    service = cluster.service(planned.name)
    model, draft = _model(cluster, service), planned.draft_model
    if planned.convert_to_bf16:
        model = small_files.converted(model)
    files = {planned.weights.directory: model}
    return {**files, draft.directory: _companion(cluster, service, draft)} if draft else files


@cache
def _of_hub(source: str, id: str, revision: str | None) -> dict[str, bytes]:
    """Read once in a run: a plan is made before and after the answers of the image, and rehearsed."""
    return small_files.of_hub(source, id, revision)


def _model(cluster: Cluster, service: Service) -> dict[str, bytes]:
    settings = service.settings
    if settings.model_source == "demo":
        with demo.checkpoint(service.model_id) as folder:
            return small_files.of_folder(folder)
    if settings.model_source == "path":
        return _folder(cluster, service, settings.model)
    return _of_hub(settings.model_source, service.model_id, trust.revision(settings))


def _companion(cluster: Cluster, service: Service, companion: Companion) -> dict[str, bytes]:
    if companion.from_hub:
        return _of_hub(companion.source, companion.id, companion.revision)
    return _folder(cluster, service, companion.id)


def _folder(cluster: Cluster, service: Service, folder: str) -> dict[str, bytes]:
    """Of a folder of the head, read here where this machine has it, too."""
    here = folder_here(cluster, Path(folder))
    if here is not None:
        return small_files.of_folder(here)
    from headfirst.control.deployment.hosts.head_folder import files_on_head

    return files_on_head(host_access(cluster)[service.hosts[0].name], folder)
