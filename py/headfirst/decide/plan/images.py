"""Which program an image is of, by its name: another known one is refused, an unknown one noted. Pure."""

from __future__ import annotations

from typing import NamedTuple

from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.containers.image import ImageRecipe
from headfirst.decide.engines.base import Engine
from headfirst.decide.plan import monitoring
from headfirst.decide.plan.front import proxy, router, webui


class Program(NamedTuple):
    """A program, the image that the plan takes for it, and the word that names of its images have."""

    title: str
    image: str
    word: str


PROGRAMS = {
    "webui_image": Program("Open WebUI", webui.OFFICIAL_IMAGE, "open-webui"),
    "router_image": Program("smg", router.OFFICIAL_IMAGE, "smg"),
    "proxy_image": Program("HAProxy", proxy.OFFICIAL_IMAGE, "haproxy"),
    "prometheus_image": Program("Prometheus", monitoring.PROMETHEUS_IMAGE, "prometheus"),
    "grafana_image": Program("Grafana", monitoring.GRAFANA_IMAGE, "grafana"),
    "node_exporter_image": Program("node_exporter", monitoring.NODE_EXPORTER_IMAGE, "node-exporter"),
    "dcgm_exporter_image": Program("DCGM exporter", monitoring.DCGM_EXPORTER_IMAGE, "dcgm-exporter"),
}
# Images of guides that have none of these and no engine, unless their tag names one.
_OTHERS = {
    "ghcr.io/huggingface/text-generation-inference",
    "nvcr.io/nvidia/pytorch",
    "nvcr.io/nvidia/tritonserver",
    "ollama/ollama",
}


def notes(cluster: Cluster) -> list[str]:
    """A note for each image that is not named like its program's. InputError for that of another program."""
    return [
        f"{setting}={image} is not named as an image of {program.title}; the plan is for {program.image}"
        for setting, program in PROGRAMS.items()
        if (image := getattr(cluster.settings, setting))
        and not _is_named(image, program, setting, cluster.given.get(setting))
    ]


def refuse_other_engine(engine: Engine, image: str | None, where: str | None) -> None:
    """InputError for an image of another engine, or of a program that has no engine."""
    if image:
        _is_named(image, _of_engine(engine), "engine_image", where)


def recipe(service: Service, engine: Engine) -> ImageRecipe:
    """How the engine's image is built. InputError where it cannot be."""
    recipe_of_engine = engine.image_recipe(service.settings.engine_device)
    if recipe_of_engine is None:
        raise InputError(
            f"the {service.settings.engine_device} image of {engine.title} {engine.version} cannot be built "
            "here",
            where=service.given.get("engine_image_source"),
            hint="Leave engine_image_source out: the image is then pulled from its registry.",
        )
    return recipe_of_engine


def _is_named(image: str, program: Program, setting: str, where: str | None) -> bool:
    """Whether the name has the program's. InputError for that of another program."""
    repository = engines.repository_of(image)
    if program.word in repository.rpartition("/")[2]:
        return True
    known = PROGRAMS | {name: _of_engine(engines.get(name)) for name in engines.names()}
    for name, other in known.items():
        if other != program and f"/{repository}".endswith(f"/{_path(other.image)}"):
            engine = setting == "engine_image" and name in engines.names()
            raise InputError(
                f"{setting}={image} is {other.title}'s image, not {program.title}'s",
                where=where,
                hint=f"{f'Write engine={name}' if engine else 'Leave it out'}, or take an image of "
                f"{program.title}.",
            )
    if repository in _OTHERS and program.word not in image:
        raise InputError(
            f"{setting}={image} has no {program.title}",
            where=where,
            hint=f"Leave it out ({program.image}), or take an image that has {program.title}.",
        )
    return False


def _of_engine(engine: Engine) -> Program:
    return Program(engine.title, engine.images["cuda"], engine.name)


def _path(image: str) -> str:
    """The name of a repository without its registry, which a mirror replaces."""
    first, _, rest = engines.repository_of(image).partition("/")
    return rest.removeprefix("library/") if "." in first else f"{first}/{rest}"
