"""What the nodes are given from this machine: images built here, and the wheel of the node tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils.node_wheel import build_node_wheel
from ansible_collections.headfirst.serving.plugins.plugin_utils.registry_logins import logins

from headfirst.common.errors import InputError
from headfirst.control.deployment.lab_nodes import NODE_SHARE, lab_of, share_dir
from headfirst.control.deployment.running.local_work import JobAdvance
from headfirst.control.images import build, recipes
from headfirst.control.images.archive import ImageArchive
from headfirst.control.inventory.local_files import local_file
from headfirst.control.machine.packages import FOR_IMAGES, FOR_LAB, Package
from headfirst.control.paths import cache_dir
from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.containers.image import ImageRecipe
from headfirst.decide.plan import images


@dataclass(frozen=True)
class Tarball:
    """An image as a file. `on_node`: whether `path` is the node's (its share) or this machine's."""

    path: Path
    on_node: bool


@dataclass(frozen=True)
class Artifacts:
    """Files for the roles; None where the image comes from a registry."""

    engines: Mapping[str | None, Tarball | None]  # by the name of their service
    webui: Tarball | None
    node_wheel: Path
    prometheus: Tarball | None = None
    router: Tarball | None = None
    proxy: Tarball | None = None
    # By image; the one that is built here is in `prometheus`.
    monitoring: Mapping[str, Tarball] = field(default_factory=dict)


def image_source(prefix: str, tarball: Tarball | None) -> dict[str, Any]:
    """Where an image comes from, as variables of the role engine_image that begin with `prefix`."""
    if tarball is None:
        return {f"{prefix}_source": "registry"}
    return {
        f"{prefix}_source": "tarball",
        f"{prefix}_tarball": str(tarball.path),
        f"{prefix}_tarball_remote": tarball.on_node,
    }


def registry_logins(cluster: Cluster) -> dict[str, str]:
    """The file with the logins of registries, as a variable of the role engine_image, which reads it.

    InputError where it has none.
    """
    if not cluster.settings.registry_logins:
        return {}
    path, where = local_file(cluster, cluster.settings.registry_logins), "registry_logins"
    try:
        logins(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{where}={path}: {reason}", where=cluster.given.get(where)) from None
    return {"engine_image_registry_logins": str(path)}


def jobs(cluster: Cluster) -> dict[str, Callable[[JobAdvance], Any]]:
    """The work to do on this machine before the nodes can be changed, by name."""
    settings = cluster.settings
    built: dict[str, ImageRecipe | build.DebianRecipe] = {}
    for service in cluster.services:
        if service.settings.engine_image_source == "build":
            recipe = _recipe(service)
            built[f"image {recipe.tag}"] = recipe
    if settings.webui_image_source == "build":
        built["webui image"] = recipes.OPEN_WEBUI
    if cluster.monitoring and settings.prometheus_image_source == "build":
        built["prometheus image"] = recipes.PROMETHEUS
    if cluster.router_hosts and settings.router_image_source == "build":
        built["router image"] = recipes.SMG
    if cluster.has_proxy and settings.proxy_image_source == "build":
        built["proxy image"] = recipes.HAPROXY
    return {name: partial(_build, recipe, cluster) for name, recipe in built.items()}


def packages(cluster: Cluster) -> list[Package]:
    """Debian packages of this machine that `jobs` and the lab's nodes use."""
    return [*(FOR_IMAGES if jobs(cluster) else ()), *(FOR_LAB if lab_of(cluster) else ())]


def collect(cluster: Cluster, built: dict[str, Any]) -> Artifacts:
    """The artifacts, from the results of `jobs`."""
    return Artifacts(
        engines={service.name: _engine(cluster, service, built) for service in cluster.services},
        webui=_tarball(cluster, built.get("webui image")),
        router=_tarball(cluster, built.get("router image")),
        node_wheel=build_node_wheel(cache_dir("wheels")),
        prometheus=_tarball(cluster, built.get("prometheus image")),
        proxy=_tarball(cluster, built.get("proxy image")),
    )


def _engine(cluster: Cluster, service: Service, built: dict[str, Any]) -> Tarball | None:
    settings = service.settings
    if settings.engine_image_source == "tarball" and settings.engine_image_tarball:
        return Tarball(local_file(cluster, settings.engine_image_tarball), on_node=False)
    if settings.engine_image_source == "build":
        return _tarball(cluster, built.get(f"image {_recipe(service).tag}"))
    return None


def _recipe(service: Service) -> ImageRecipe:
    engine, _ = engines.of_service(service)
    return images.recipe(service, engine)


def _build(recipe: ImageRecipe | build.DebianRecipe, cluster: Cluster, advance: JobAdvance) -> ImageArchive:
    return build.build(recipe, _images(cluster), advance)


def _images(cluster: Cluster) -> Path:
    folder = (share_dir() if lab_of(cluster) else cache_dir()) / "images"
    folder.mkdir(exist_ok=True)
    return folder


def _tarball(cluster: Cluster, archive: ImageArchive | None) -> Tarball | None:
    if archive is None:
        return None
    if lab_of(cluster):
        return Tarball(NODE_SHARE / archive.path.relative_to(share_dir()), on_node=True)
    return Tarball(archive.path, on_node=False)
