"""The chat page's part of the plan, read from the role that carries it out: one source, no copy."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined

from headfirst.cluster.types import Cluster
from headfirst.collection import collection_root
from headfirst.plan.docker_run import docker_run
from headfirst.plan.types import Webui

# What headfirst.images.open_webui builds; the same server as the official image, from its PyPI package.
BUILT_IMAGE = "headfirst/open-webui:0.12.4"
BUILT_COMMAND = ["open-webui", "serve"]


def plan(cluster: Cluster) -> Webui:
    """Image, address and environment of Open WebUI; secrets come from an env file that the role writes."""
    settings, host = cluster.settings, cluster.webui
    built = settings.webui_image_source == "build"
    defaults, internal = _role("defaults"), _role("vars")
    image = settings.webui_image or (BUILT_IMAGE if built else defaults["open_webui_image"])
    command = [*BUILT_COMMAND, "--host", host.address, "--port", str(settings.webui_port)] if built else []
    variables = defaults | {
        "open_webui_bind_address": host.address,
        "open_webui_port": settings.webui_port,
        "open_webui_engine_url": cluster.engine_url,
    }
    env = {name: _render(value, variables) for name, value in internal["__open_webui_env"].items()}
    spec = internal["__open_webui_spec"]
    line = docker_run(
        name=defaults["open_webui_name"],
        image=image,
        argv=command,
        env=env,
        env_file=internal["__open_webui_env_file"],
        volumes=[_render(volume, variables) for volume in spec["volumes"]],
        cap_add=spec["cap_add"],
        cap_drop=spec["cap_drop"],
        restart=spec["restart_policy"],
    )
    return Webui(
        host=host.name,
        address=host.address,
        port=settings.webui_port,
        image=image,
        command=command,
        url=cluster.webui_url,
        env=env,
        docker_run=line,
    )


@cache
def _role(part: str) -> dict[str, Any]:
    text = (collection_root() / "roles" / "open_webui" / part / "main.yml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def _render(value: Any, variables: dict[str, Any]) -> str:
    environment = Environment(undefined=StrictUndefined)  # noqa: S701 - no HTML here
    return environment.from_string(str(value)).render(variables)
