"""Logins of registries as `docker login` writes them, and the one that an image needs. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

_HUB = "docker.io"
_HUB_NAMES = {_HUB, "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"}
_TOKENS = ("identitytoken", "registrytoken")


def logins(text: str) -> dict[str, dict[str, str]]:
    """By registry, what the API of a container runtime takes (AuthConfig). ValueError: why there is none.

    No message has anything of the logins.
    """
    try:
        document = json.loads(text)
        entries = document.get("auths") or {}
        logins_by_host = {_host(key): login for key, entry in entries.items() if (login := _login(entry))}
    except (AttributeError, LookupError, TypeError, ValueError):
        raise ValueError("it is not a config.json as `docker login` writes it") from None
    if logins_by_host:
        return logins_by_host
    if document.get("credsStore") or document.get("credHelpers"):
        raise ValueError(
            "its logins are in a credential store of this machine; `DOCKER_CONFIG=FOLDER docker login "
            "REGISTRY` with an empty folder writes a config.json that has them"
        )
    raise ValueError("it has no login; `docker login REGISTRY` writes one")


def registry(image: str) -> str:
    """The registry of an image: registry.example.org:5000/engine:v1, or Docker Hub's."""
    first = image.partition("/")[0]
    has_registry = first != image and ("." in first or ":" in first or first == "localhost")
    return _host(first) if has_registry else _HUB


def of_image(logins: Mapping[str, dict[str, str]], image: str) -> dict[str, str]:
    """The login for an image; empty where its registry has none."""
    return dict(logins.get(registry(image), {}))


def _host(key: str) -> str:
    """`https://registry.example.org/v2/` and `registry.example.org` are one registry."""
    host = key.partition("://")[2] if "://" in key else key
    host = host.partition("/")[0].lower()
    return _HUB if host in _HUB_NAMES else host


def _login(entry: Mapping[str, Any]) -> dict[str, str]:
    """One entry of `auths`; empty where a credential store has its login."""
    for token in _TOKENS:
        if entry.get(token):
            return {token: str(entry[token])}
    if entry.get("username"):
        return {"username": str(entry["username"]), "password": str(entry["password"])}
    if not entry.get("auth"):
        return {}
    try:
        login = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
    except binascii.Error:
        raise ValueError("not base64") from None
    return {"username": login[0], "password": login[2].rstrip("\0")}
