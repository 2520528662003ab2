"""What the nodes are given from this machine: images built here, and the wheel of the node tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headfirst.cluster.types import Cluster
from headfirst.deployment.lab_nodes import NODE_SHARE, lab_of, share_dir
from headfirst.deployment.local_work import Advance
from headfirst.images import cpu_engine, open_webui
from headfirst.images.archive import ImageArchive
from headfirst.lab.packages import FOR_IMAGES, FOR_LAB, Package
from headfirst.paths import cache_dir
from headfirst.run.node_wheel import build_node_wheel


@dataclass(frozen=True)
class Tarball:
    """An image as a file. `on_node` says whether `path` is the node's (its share) or this machine's."""

    path: Path
    on_node: bool


@dataclass(frozen=True)
class Artifacts:
    """Files for the roles; None where the image comes from a registry."""

    engine: Tarball | None
    webui: Tarball | None
    node_wheel: Path


def jobs(cluster: Cluster) -> dict[str, Callable[[Advance], Any]]:
    """The work to do on this machine before the nodes can be changed, by name."""
    settings, found = cluster.settings, {}
    if settings.engine_image_source == "build":
        found["engine image"] = lambda advance: cpu_engine.build(_images(cluster), _counted(advance))
    if settings.webui_image_source == "build":
        found["webui image"] = lambda advance: open_webui.build(_images(cluster), _counted(advance))
    return found


def packages(cluster: Cluster) -> list[Package]:
    """Debian packages of this machine that `jobs` and the lab's nodes use."""
    builds = "build" in (cluster.settings.engine_image_source, cluster.settings.webui_image_source)
    return [*(FOR_IMAGES if builds else ()), *(FOR_LAB if lab_of(cluster) else ())]


def collect(cluster: Cluster, built: dict[str, Any]) -> Artifacts:
    """The artifacts, from the results of `jobs`."""
    settings = cluster.settings
    engine = _tarball(cluster, built.get("engine image"))
    if settings.engine_image_source == "tarball" and settings.engine_image_tarball:
        engine = Tarball(Path(settings.engine_image_tarball).expanduser().absolute(), on_node=False)
    return Artifacts(
        engine=engine,
        webui=_tarball(cluster, built.get("webui image")),
        node_wheel=build_node_wheel(cache_dir("wheels")),
    )


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


def _counted(advance: Advance) -> Callable[[int, int, str], None]:
    return lambda done, total, what: advance(what, done, total)
