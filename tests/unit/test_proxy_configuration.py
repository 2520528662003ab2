"""The proxy's configuration as the role renders it; scenario `proxy` of molecule runs HAProxy with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).resolve().parents[2] / "roles" / "proxy"
API = {"name": "api", "path": "/v1", "servers": ["127.0.0.1:30000"]}


def rendered(**variables: Any) -> str:
    given = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text()) | {
        "ansible_managed": "managed",
        "__proxy_map": "/keys.map",
        "__proxy_scheme": "http",
        "proxy_services": [API],
        "proxy_page": "127.0.0.1:8080",
    }
    template = trust_as_template((ROLE / "templates" / "haproxy.cfg.j2").read_text())
    text: str = Templar(loader=DataLoader(), variables=given | variables).template(template)
    return text


def sections(text: str) -> dict[str, list[str]]:
    """The lines of each section, without comments, by its first line."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith((" ", "#")):
            found[line] = name = []
        elif line.strip() and not line.strip().startswith("#"):
            name.append(line.strip())
    return found


@pytest.fixture
def parts() -> dict[str, list[str]]:
    return sections(rendered())


def test_one_address_has_a_part_of_the_connections_only() -> None:
    people = sections(rendered(proxy_connections_per_address=7))["frontend people"]
    assert "tcp-request connection track-sc1 src table sources" in people
    assert "tcp-request connection reject if { sc1_conn_cur gt 7 }" in people


def test_a_connection_of_http_2_brings_no_more_open_requests() -> None:
    people = sections(rendered(proxy_connections_per_address=7))["frontend people"]
    tracked = people.index("http-request track-sc2 src table requests")
    refusal = people[tracked + 1]
    assert "return status 429 " in refusal
    assert refusal.endswith(" if { sc2_conn_cur gt 7 }")
    assert tracked < next(number for number, line in enumerate(people) if " wait-for-body " in line)


def test_who_holds_all_connections_of_one_port_holds_none_of_the_other(parts: dict[str, list[str]]) -> None:
    def maxconn(name: str) -> int:
        return next(int(line.split()[1]) for line in parts[name] if line.startswith("maxconn "))

    limit = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())["proxy_connections_per_address"]
    assert limit * 4 < maxconn("frontend people")
    assert maxconn("frontend people") + maxconn("frontend metrics") < maxconn("global")


def test_who_has_no_key_is_refused_before_a_body_is_awaited(parts: dict[str, list[str]]) -> None:
    rules = [line for line in parts["frontend people"] if line.startswith("http-request ")]
    refusals = [number for number, line in enumerate(rules) if " return status 4" in line and " api" in line]
    waits = [number for number, line in enumerate(rules) if " wait-for-body " in line]
    assert len(refusals) >= 3
    assert len(waits) == 1
    assert max(refusals) < waits[0]


def test_long_timeouts_are_those_of_answers_and_websockets(parts: dict[str, list[str]]) -> None:
    timeouts = [
        (name, line) for name, lines in parts.items() for line in lines if line.startswith("timeout ")
    ]
    assert [(name, line) for name, line in timeouts if line.endswith("h")] == [
        ("defaults", "timeout server 1h"),
        ("defaults", "timeout tunnel 1h"),
    ]
