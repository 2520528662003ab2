"""The chat page's part of the plan."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from headfirst.cluster.types import Cluster
from headfirst.collection import collection_root
from headfirst.containers import names
from headfirst.containers.docker_run import docker_run
from headfirst.containers.spec import Container
from headfirst.plan.types import Webui

OFFICIAL_IMAGE = "ghcr.io/open-webui/open-webui:v0.12.4-slim"
# What headfirst.images.open_webui builds; the same server as the official image, from its PyPI package.
BUILT_IMAGE = "headfirst/open-webui:0.12.4"
BUILT_COMMAND = ["open-webui", "serve"]


def plan(cluster: Cluster) -> Webui:
    """Address and container of Open WebUI; secrets come from an env file that the role writes."""
    settings, host = cluster.settings, cluster.webui
    built = settings.webui_image_source == "build"
    base = _base()
    container = Container.model_validate(
        base
        | {
            "name": names.WEBUI,
            "image": settings.webui_image or (BUILT_IMAGE if built else OFFICIAL_IMAGE),
            "command": [*BUILT_COMMAND, "--host", host.address, "--port", str(settings.webui_port)]
            if built
            else [],
            "environment": {
                "HOST": host.address,
                "PORT": str(settings.webui_port),
                "OPENAI_API_BASE_URLS": f"{cluster.engine_url}/v1",
                "CORS_ALLOW_ORIGIN": ";".join(_origins(cluster)),
                **base["environment"],
                **settings.webui_env,
            },
            "volumes": [f"{settings.webui_data_dir}:{base['environment']['DATA_DIR']}"],
        }
    )
    return Webui(
        host=host.name,
        address=host.address,
        port=settings.webui_port,
        url=cluster.webui_url,
        container=container,
        docker_run=docker_run(container),
    )


def _origins(cluster: Cluster) -> list[str]:
    """Addresses at which browsers open the page: its own, those of a tunnel, and those of the settings."""
    port = cluster.settings.webui_port
    end = "" if port == 80 else f":{port}"  # browsers leave the default port out
    hosts = (cluster.webui.address, "localhost", "127.0.0.1")
    return [*(f"http://{host}{end}" for host in hosts), *cluster.settings.webui_origins]


@cache
def _base() -> dict[str, Any]:
    """What the role gives to every chat page; it is usable alone, so its safe settings are there."""
    text = (collection_root() / "roles" / "open_webui" / "vars" / "main.yml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)["__open_webui_base"]
    return found
