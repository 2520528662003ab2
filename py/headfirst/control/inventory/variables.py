"""Every variable that an inventory may set, with its default and meaning: ours, and those of the roles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel

from headfirst.collection import collection_root, role_packages
from headfirst.control.inventory.decided import DECIDED
from headfirst.decide.cluster.settings import ClusterSettings, HostSettings, ServiceSettings

# libyaml where it is there: without it these files are half of the time that a plan takes.
_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MARKUP = re.compile(r"\b[CIV]\(([^()]*)\)")  # Ansible's, of names and values
_CHECKED = ("type", "elements", "choices", "options")


class Variable(NamedTuple):
    """`scope` is `service`, `cluster`, `host`, or the name of the role that reads the variable.

    `decided`: by the plan, so that an inventory cannot set it.
    """

    name: str
    scope: str
    default: str
    description: str
    decided: bool = False


def settings_variables() -> tuple[Variable, ...]:
    """The settings of a service, of the cluster and of a host."""
    return (
        *_settings("service", ServiceSettings),
        *_settings("cluster", ClusterSettings),
        *_settings("host", HostSettings),
    )


def find(word: str, *, roles: bool = False) -> list[Variable]:
    """Settings with this word in name, default or meaning, then the roles' variables; names come first.

    "" finds all settings, and the roles' variables only with `roles`.
    """
    word, matches = word.lower(), []
    for variables in (settings_variables(), role_variables() if roles or word else ()):
        by_name = [variable for variable in variables if word in variable.name.lower()]
        matches += by_name
        meanings = {each: f"{each.default} {each.description}".lower() for each in variables}
        matches += [each for each in variables if each not in by_name and word in meanings[each]]
    return matches


@cache
def role_options() -> dict[str, dict[str, Any]]:
    """Public variables of every role, with what the argument specification states of each.

    A variable that takes the name of a package source, or an address, has the names in `sources`.
    """
    options: dict[str, dict[str, Any]] = {}
    for path in sorted(collection_root().glob("roles/*/meta/argument_specs.yml")):
        role = path.parent.parent
        for entry in _yaml(path).get("argument_specs", {}).values():
            for name, option in entry.get("options", {}).items():
                options[name] = {
                    "role": role.name,
                    "default": option.get("default"),
                    "description": option.get("description", ""),
                    "spec": {key: option[key] for key in _CHECKED if key in option},
                }
        packages = role_packages(role.name) if (role / "vars/main/packages.yml").is_file() else {}
        if repositories := packages.get(f"__{role.name}_repositories"):
            options[f"{role.name}_source"]["sources"] = ["distribution", *repositories]
    return options


def _yaml(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.load(text, _YAML_LOADER) or {}  # noqa: S506 - a safe loader
    return loaded


def role_variables() -> tuple[Variable, ...]:
    """The public variables of every role, from their argument specifications."""
    return tuple(
        Variable(
            name, option["role"], _text(option["default"]), _sentence(option["description"]), name in DECIDED
        )
        for name, option in role_options().items()
    )


def _settings(scope: str, model: type[BaseModel]) -> Iterator[Variable]:
    for name, field in model.model_fields.items():
        default = _text(field.get_default(call_default_factory=True))
        yield Variable(name, scope, default, field.description or "")


def _text(value: Any) -> str:
    if value in (None, "", [], {}):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sentence(description: str | list[str]) -> str:
    text = description if isinstance(description, str) else " ".join(description)
    return _MARKUP.sub(r"`\1`", text.strip())
