"""What the nodes are given from this machine: images built here, and the wheel of the node tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

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
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.containers.image import ImageRecipe
from headfirst.decide.containers.spec import Container
from headfirst.decide.plan import images
from headfirst.decide.plan.types import Plan, PlannedService

Recipe = ImageRecipe | build.DebianRecipe


@dataclass(frozen=True)
class Tarball:
    """An image as a file. `on_node`: whether `path` is the node's (its share) or this machine's."""

    path: Path
    on_node: bool


@dataclass(frozen=True)
class Artifacts:
    """Files for the roles. An image that is not among them comes from a registry."""

    node_wheel: Path
    images: Mapping[str, Tarball] = field(default_factory=dict)  # by their names in the plan
    engines: Mapping[str | None, Tarball] = field(default_factory=dict)  # of services that name a file


def image_source(tarball: Tarball | None, prefix: str = "") -> dict[str, Any]:
    """Where an image comes from, as variables of the role engine_image that begin with `prefix`."""
    if tarball is None:
        return {f"{prefix}source": "registry"}
    return {
        f"{prefix}source": "tarball",
        f"{prefix}tarball": str(tarball.path),
        f"{prefix}tarball_remote": tarball.on_node,
    }


class Build(NamedTuple):
    """An image that is made on this machine: the name of that work, and the image's names in the plan."""

    job: str
    recipe: Recipe
    images: list[str]

    def archive(self, cluster: Cluster, advance: JobAdvance) -> ImageArchive:
        """Make it, where it is missing or its recipe has changed; a lab's nodes see its folder."""
        folder = (share_dir() if lab_of(cluster) else cache_dir()) / "images"
        folder.mkdir(exist_ok=True)
        return build.build(self.recipe, folder, advance)


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


def builds(cluster: Cluster, plan: Plan) -> list[Build]:
    """The images of the plan that are made on this machine."""
    of_engines: dict[str, Build] = {}
    for planned in plan.services:
        service = cluster.service(planned.name)
        if service.settings.engine_image_source == "build":
            engine, _ = engines.of_service(service)
            recipe = images.recipe(service, engine)
            made = of_engines.setdefault(recipe.tag, Build(f"image {recipe.tag}", recipe, []))
            if engine_image(planned) not in made.images:
                made.images.append(engine_image(planned))
    routers = [router.container for service in plan.services for router in service.routers]
    watching = plan.monitoring.containers if plan.monitoring else []
    built = [monitor.container for monitor in watching if monitor.image_source == "build"]
    parts: list[tuple[str, Recipe, list[Container]]] = [
        ("webui", recipes.OPEN_WEBUI, [plan.webui.container] if plan.webui else []),
        ("prometheus", recipes.PROMETHEUS, built),
        ("router", recipes.SMG, routers),
        ("proxy", recipes.HAPROXY, [plan.proxy.container] if plan.proxy else []),
    ]
    others = [
        Build(f"{part} image", recipe, list(dict.fromkeys(container.image for container in containers)))
        for part, recipe, containers in parts
        if containers and getattr(cluster.settings, f"{part}_image_source") == "build"
    ]
    return [*of_engines.values(), *others]


def packages(cluster: Cluster, plan: Plan) -> list[Package]:
    """Debian packages of this machine that builds and the lab's nodes use."""
    return [*(FOR_IMAGES if builds(cluster, plan) else ()), *(FOR_LAB if lab_of(cluster) else ())]


def collect(cluster: Cluster, plan: Plan, built: Mapping[str, Any]) -> Artifacts:
    """The artifacts, from the archives of `builds` by their jobs."""
    return Artifacts(
        build_node_wheel(cache_dir("wheels")),
        {
            image: _tarball(cluster, built[made.job])
            for made in builds(cluster, plan)
            for image in made.images
        },
        {name: Tarball(path, on_node=False) for name, path in engine_files(cluster).items()},
    )


def engine_files(cluster: Cluster) -> dict[str | None, Path]:
    """Archives of this machine that the inventory names, by the service of their engine."""
    return {
        service.name: local_file(cluster, service.settings.engine_image_tarball)
        for service in cluster.services
        if service.settings.engine_image_source == "tarball" and service.settings.engine_image_tarball
    }


def engine_image(service: PlannedService) -> str:
    """The image of all ranks of a service."""
    return service.replicas[0].nodes[0].container.image


def _tarball(cluster: Cluster, archive: ImageArchive) -> Tarball:
    if lab_of(cluster):
        return Tarball(NODE_SHARE / archive.path.relative_to(share_dir()), on_node=True)
    return Tarball(archive.path, on_node=False)
