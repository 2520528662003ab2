"""Files with secrets, as the plan has them: the texts around the secrets, which are blanks."""

from __future__ import annotations

from collections.abc import Mapping

from headfirst.decide.containers.blanks import Text, mark, parse, secret
from headfirst.decide.engines.base import Engine

ROUTER_KEY = "router-key"
WEBUI_PASSWORD = "webui-admin-password"  # noqa: S105 - the secret's name
WEBUI_SECRET_KEY = "webui-secret-key"  # noqa: S105 - the secret's name


def api_key(service: str | None) -> str:
    """The mark of the key of a service's API."""
    return mark(secret(f"api-key-{service}" if service else "api-key"))


def config_file(engine: Engine, service: str | None) -> dict[str, Text]:
    """What the file holds that gives rank 0 its key."""
    return {name: parse(text) for name, text in engine.config_file(api_key=api_key(service)).items()}


def env_file(variables: Mapping[str, str]) -> dict[str, Text]:
    """The variables of an env file; their values are texts with marks."""
    return {name: parse(text) for name, text in variables.items()}
