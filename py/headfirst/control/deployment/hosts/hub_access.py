"""How this user reaches the model hubs, handed on to the head: it downloads on the user's behalf."""

from __future__ import annotations

import os
from collections.abc import Mapping

_TOKENS = {"huggingface": "HF_TOKEN", "modelscope": "MODELSCOPE_API_TOKEN"}
_ENDPOINTS = ("HF_ENDPOINT", "MODELSCOPE_ENDPOINT")


def hub_token(source: str, environment: Mapping[str, str] = os.environ) -> str:
    """The user's token for the hub `source`, or an empty string."""
    return environment.get(_TOKENS.get(source, ""), "")


def hub_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Mirrors that this machine is set to use."""
    return {name: environment[name] for name in _ENDPOINTS if environment.get(name)}
