"""Role weights on the hosts of a play, with its own defaults and what a test says the hosts report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils.weights_decision import Role
from variables_of_role import value

ROLE = Path(__file__).resolve().parents[1] / "roles" / "weights"
ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2"}
NOTHING = {
    "digest": "",
    "whole": "",
    "pinned": "",
    "files": {},
    **dict.fromkeys(("answers", "is_whole", "in_place"), False),
}


def variables(**given: Any) -> dict[str, Any]:
    """What the role hands to its action, where these variables are set."""
    values: dict[str, Any] = {
        "weights_model": "/srv/m",
        "weights_source": "path",
        "weights_name": "m",
        "weights_token": "x",
    }
    values |= {"weights_members": list(ADDRESSES.values())}
    values |= {f"weights_{name}": value for name, value in given.items()}
    handed: dict[str, Any] = json.loads(json.dumps(rendered("__weights_variables", **values)))
    return handed


def rendered(name: str, **known: Any) -> Any:
    """A variable of the role, by the values of others."""
    return value(ROLE, name, **known)


def role(looks: Mapping[str, Any], host: str = "a", *, shared: bool = False, **given: Any) -> Role:
    """The role on a host; `looks` are the reports of all, `shared`: all write into one folder."""
    reports = {
        name: {
            "model": {},
            "place": {"id": "share" if shared else name},
            "error": "",
            "failure": "",
            "state": {**NOTHING, "address": ADDRESSES[name], **look},
        }
        for name, look in looks.items()
    }
    return Role(host, variables(**{"address": ADDRESSES[host], **given}), reports)
