"""Whether images that an inventory names are of the programs that run in them, by their names. Pure."""

from __future__ import annotations

from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.engines.base import Engine
from headfirst.decide.plan import monitoring
from headfirst.decide.plan.front import proxy, router, webui

# By the setting: the program, and the image that the plan takes without it.
PROGRAMS = {
    "webui_image": ("Open WebUI", webui.OFFICIAL_IMAGE),
    "router_image": ("smg", router.OFFICIAL_IMAGE),
    "proxy_image": ("HAProxy", proxy.OFFICIAL_IMAGE),
    "prometheus_image": ("Prometheus", monitoring.PROMETHEUS_IMAGE),
    "grafana_image": ("Grafana", monitoring.GRAFANA_IMAGE),
    "node_exporter_image": ("node_exporter", monitoring.NODE_EXPORTER_IMAGE),
    "dcgm_exporter_image": ("DCGM exporter", monitoring.DCGM_EXPORTER_IMAGE),
}


def notes(cluster: Cluster) -> list[str]:
    """A note for each image that is not named like its program's. InputError for that of another program."""
    for service in cluster.services:
        title = engines.get(service.settings.engine).title
        where = service.given.get("engine_image")
        _refuse_other("engine_image", service.settings.engine_image, title, where)
    found = []
    for setting, (title, official) in PROGRAMS.items():
        image = getattr(cluster.settings, setting)
        if image is None or _last(official) in _last(image):
            continue
        _refuse_other(setting, image, title, cluster.given.get(setting))
        found.append(f"{setting}={image} is not named like an image of {title}; the plan is for {official}")
    return found


def _refuse_other(setting: str, image: str | None, title: str, where: str | None) -> None:
    known = [*PROGRAMS.values(), *((engine.title, engine.images["cuda"]) for engine in _engines())]
    for other, official in known if image else ():
        if other != title and f"/{engines.repository_of(image or '')}".endswith(f"/{_path(official)}"):
            raise InputError(
                f"{setting}={image} is {other}'s, and {title} runs there",
                where=where,
                hint=f"Leave {setting} out, or take an image of {title}.",
            )


def _engines() -> list[Engine]:
    return [engines.get(name) for name in engines.names()]


def _path(image: str) -> str:
    """The name of a repository without its registry, which a mirror replaces."""
    first, _, rest = engines.repository_of(image).partition("/")
    return rest.removeprefix("library/") if "." in first else f"{first}/{rest}"


def _last(image: str) -> str:
    return engines.repository_of(image).rpartition("/")[2]
