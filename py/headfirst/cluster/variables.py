"""Every variable that an inventory may set, with its default and meaning: ours, and those of the roles."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel

from headfirst.cluster.settings import ClusterSettings, HostSettings
from headfirst.collection import collection_root


class Variable(NamedTuple):
    """`scope` is `cluster`, `host`, or the name of the role that reads the variable."""

    name: str
    scope: str
    default: str
    description: str


def settings_variables() -> tuple[Variable, ...]:
    """The settings of the cluster and of a host."""
    return (*_settings("cluster", ClusterSettings), *_settings("host", HostSettings))


@cache
def role_variables() -> tuple[Variable, ...]:
    """The public variables of every role, from their argument specifications."""
    found: dict[str, Variable] = {}
    for path in sorted(collection_root().glob("roles/*/meta/argument_specs.yml")):
        entries = (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get("argument_specs", {})
        for name, option in (item for entry in entries.values() for item in entry.get("options", {}).items()):
            description = option["description"]
            text = description if isinstance(description, str) else " ".join(description)
            found.setdefault(name, Variable(name, path.parts[-3], _text(option.get("default")), text.strip()))
    return tuple(found.values())


def _settings(scope: str, model: type[BaseModel]) -> Iterator[Variable]:
    for name, field in model.model_fields.items():
        default = _text(field.get_default(call_default_factory=True))
        yield Variable(name, scope, default, field.description or "")


def _text(value: Any) -> str:
    if value in (None, "", [], {}):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
