"""The chat page's part of the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.headfirst.serving.plugins.plugin_utils import service_containers

from headfirst.common import container_names as names
from headfirst.common.errors import InputError
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.containers.blanks import mark, parsed, secret
from headfirst.decide.containers.spec import Container, docker_run
from headfirst.decide.plan import overrides
from headfirst.decide.plan.host import outbound
from headfirst.decide.plan.types import PlannedService, Webui

OFFICIAL_IMAGE = "ghcr.io/open-webui/open-webui:v0.12.4-slim"
# What control/images/recipes.py builds; the same server as the official image, from its PyPI package.
BUILT_IMAGE = "headfirst/open-webui:0.12.4"
BUILT_COMMAND = ["open-webui", "serve"]
ADMIN_EMAIL = "admin@headfirst.local"
# Variables that other parts of the plan follow, and the settings that have them.
_SETTINGS = {"HOST": "address for the host", "PORT": "webui_port", "DATA_DIR": "webui_data_dir"}
# Other names that Open WebUI reads (backend/open_webui/env.py and config.py).
_ALIASES = {
    "WEBUI_JWT_SECRET_KEY": "WEBUI_SECRET_KEY",
    **dict.fromkeys(("OLLAMA_API_BASE_URL", "OLLAMA_BASE_URL", "OLLAMA_BASE_URLS"), "ENABLE_OLLAMA_API"),
}


def plan(cluster: Cluster, engine_urls: Sequence[str], engine_keys: Sequence[str]) -> Webui:
    """Address and container of Open WebUI; secrets come from an env file that the role writes.

    `engine_keys` are the marks of the keys of `engine_urls`.
    """
    settings, host = cluster.settings, cluster.webui
    built = settings.webui_image_source == "build"
    base = service_containers.BASES["open_webui"]
    variables = _environment(cluster, engine_urls) | settings.webui_env
    secret = outbound.secret_variables(cluster, host).items()
    proxies = {name: url for name, url in secret if name not in settings.webui_env}
    container = Container.model_validate(
        {
            **base,
            "name": names.WEBUI,
            "image": settings.webui_image or (BUILT_IMAGE if built else settings.mirrored(OFFICIAL_IMAGE)),
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
        secret_env={**proxies, **cluster.webui_secret_env},
    )


def notes(cluster: Cluster) -> Iterator[str]:
    """What webui_env replaces of the plan's. InputError for what a setting of the inventory has."""
    env, where = {**cluster.settings.webui_env, **cluster.webui_secret_env}, cluster.given.get("webui_env")
    if name := next((name for name in env if name in _SETTINGS), None):
        raise InputError(
            f"webui_env: {name} is the plan's own", where=where, hint=f"Write {_SETTINGS[name]} instead."
        )
    planned = _environment(cluster, ())
    differing = [name for name, value in env.items() if planned.get(name) != value]
    return overrides.notes("webui_env", differing, planned.keys() | _secrets(()).keys(), _ALIASES)


def chats(services: Sequence[PlannedService]) -> list[PlannedService]:
    """The services that the chat page offers."""
    return [service for service in services if service.task in ("chat", "vision")]


def _environment(cluster: Cluster, engine_urls: Sequence[str]) -> dict[str, str]:
    return {
        "HOST": cluster.webui.address,
        "PORT": str(cluster.settings.webui_port),
        "OPENAI_API_BASE_URLS": ";".join(f"{url}/v1" for url in engine_urls),
        "CORS_ALLOW_ORIGIN": ";".join(_origins(cluster)),
        **service_containers.BASES["open_webui"]["environment"],
        **_behind_proxy(cluster),
        **outbound.variables(cluster, cluster.webui),
    }


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
