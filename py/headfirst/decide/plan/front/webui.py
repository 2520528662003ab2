"""The chat page's part of the plan."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.headfirst.serving.plugins.plugin_utils import service_containers

from headfirst.common import container_names as names
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.containers.blanks import mark, parsed, secret
from headfirst.decide.containers.spec import Container, docker_run
from headfirst.decide.plan.types import PlannedService, Webui

OFFICIAL_IMAGE = "ghcr.io/open-webui/open-webui:v0.12.4-slim"
# What control/images/recipes.py builds; the same server as the official image, from its PyPI package.
BUILT_IMAGE = "headfirst/open-webui:0.12.4"
BUILT_COMMAND = ["open-webui", "serve"]
ADMIN_EMAIL = "admin@headfirst.local"


def plan(cluster: Cluster, engine_urls: Sequence[str], engine_keys: Sequence[str]) -> Webui:
    """Address and container of Open WebUI; secrets come from an env file that the role writes.

    `engine_keys` are the marks of the keys of `engine_urls`.
    """
    settings, host = cluster.settings, cluster.webui
    built = settings.webui_image_source == "build"
    base = service_containers.BASES["open_webui"]
    variables = {
        "HOST": host.address,
        "PORT": str(settings.webui_port),
        "OPENAI_API_BASE_URLS": ";".join(f"{url}/v1" for url in engine_urls),
        "CORS_ALLOW_ORIGIN": ";".join(_origins(cluster)),
        **base["environment"],
        **_behind_proxy(cluster),
        **settings.webui_env,
    }
    container = Container.model_validate(
        {
            **base,
            "name": names.WEBUI,
            "image": settings.webui_image or (BUILT_IMAGE if built else OFFICIAL_IMAGE),
            "command": [*BUILT_COMMAND, "--host", host.address, "--port", str(settings.webui_port)]
            if built
            else [],
            "environment": {
                name: text for name, text in variables.items() if name not in cluster.webui_secret_env
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
        docker_run=docker_run(container, settings.container_runtime),
        env_file=parsed(_secrets(engine_keys)),
        secret_env=dict(cluster.webui_secret_env),
    )


def chats(services: Sequence[PlannedService]) -> list[PlannedService]:
    """The services that the chat page offers."""
    return [service for service in services if service.task in ("chat", "vision")]


def _behind_proxy(cluster: Cluster) -> dict[str, str]:
    """Environment for a page that people reach through the proxy on its own host."""
    if not cluster.has_proxy:
        return {}
    cookies = ("WEBUI_SESSION_COOKIE_SECURE", "WEBUI_AUTH_COOKIE_SECURE") if cluster.has_tls else ()
    return {"FORWARDED_ALLOW_IPS": cluster.webui.address, **dict.fromkeys(cookies, "True")}


def _origins(cluster: Cluster) -> list[str]:
    """Addresses at which browsers open the page: its own, those of a tunnel, and those of the settings."""
    port = cluster.settings.webui_port
    end = "" if port == 80 else f":{port}"  # browsers leave the default port out
    hosts = (cluster.webui.address, "localhost", "127.0.0.1")
    origins = [f"http://{host}{end}" for host in hosts]
    if cluster.has_proxy:
        scheme, _, rest = cluster.proxy_url.partition("://")
        at = rest[len(cluster.proxy_names[0]) :]
        origins += [f"{scheme}://{name}{at}" for name in cluster.proxy_names if not name.startswith("*")]
    return [*origins, *cluster.settings.webui_origins]


def _secrets(engine_keys: Sequence[str]) -> dict[str, str]:
    return service_containers.open_webui_secrets(
        engine_api_key=";".join(engine_keys),
        admin_email=ADMIN_EMAIL,
        admin_password=mark(secret("webui-admin-password")),
        secret_key=mark(secret("webui-secret-key")),
    )
