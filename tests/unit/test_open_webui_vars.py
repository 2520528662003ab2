"""The addresses at which browsers may use the chat page, as role open_webui and the plan write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from headfirst.plan import webui

ROLE = Path(__file__).resolve().parents[2] / "roles" / "open_webui"
OWN = ["http://192.0.2.7:8080", "http://localhost:8080", "http://127.0.0.1:8080"]


def environment(**variables: Any) -> dict[str, str]:
    """The container's environment, by Ansible."""
    loader = DataLoader()
    own = loader.load_from_file(str(ROLE / "vars" / "main.yml"), trusted_as_template=True)
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    templar = Templar(loader, variables={**defaults, **own, "ansible_host": "node1.example", **variables})
    found: dict[str, str] = templar.template(trust_as_template("{{ __open_webui_env }}"))
    return found


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, OWN),
        ({"open_webui_origins": ["https://chat.example.org"]}, [*OWN, "https://chat.example.org"]),
        ({"open_webui_port": 80}, ["http://192.0.2.7", "http://localhost", "http://127.0.0.1"]),
        (
            {"open_webui_bind_address": "0.0.0.0"},
            ["http://node1.example:8080", "http://localhost:8080", "http://127.0.0.1:8080"],
        ),
    ],
)
def test_only_the_pages_own_addresses_are_allowed(variables: dict[str, Any], expected: list[str]) -> None:
    found = environment(**{"open_webui_bind_address": "192.0.2.7", **variables})
    assert found["CORS_ALLOW_ORIGIN"].split(";") == expected


def test_the_plan_shows_what_the_role_sets() -> None:
    role, given = webui._role("vars")["__open_webui_env"], webui._role("defaults")
    given = given | {"open_webui_bind_address": "192.0.2.7"}
    set_by_the_role = environment(open_webui_bind_address="192.0.2.7")
    assert {name: webui._render(value, given) for name, value in role.items()} == {
        name: str(value) for name, value in set_by_the_role.items()
    }


def test_strangers_get_no_account_and_name_no_address() -> None:
    found = environment()
    assert found["ENABLE_SIGNUP"] == "False"
    assert found["FORWARDED_ALLOW_IPS"] == "127.0.0.1"
    # A header that signs its sender in is off unless it is named.
    assert not [name for name in found if "TRUSTED" in name]
