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


REWARD = {**API, "paths": ["/classify", "/pooling"], "engines": ["192.0.2.7:30000", "192.0.2.8:30000"]}


def test_paths_outside_v1_need_a_key_and_go_to_the_engines() -> None:
    parts = sections(rendered(proxy_services=[REWARD], proxy_service_api_keys={"api": "sk-engine"}))
    people, beside = parts["frontend people"], parts["backend paths_api"]
    named = people.index("http-request set-var(txn.service) str(api) if beside_api")
    assert people[named - 1] == "acl beside_api path /classify /pooling"
    assert named < people.index("acl api var(txn.service) -m found")
    assert people[-2:] == ["use_backend paths_api if beside_api", "default_backend page"]
    assert [line for line in beside if line.startswith("server ")] == [
        "server s0 192.0.2.7:30000 check",
        "server s1 192.0.2.8:30000 check",
    ]
    assert "http-request set-header Authorization 'Bearer sk-engine'" in beside
    assert not any("replace-path" in line for line in beside)


def test_paths_outside_v1_are_below_a_services_own_path() -> None:
    service = {**REWARD, "path": "/services/api/v1"}
    parts = sections(rendered(proxy_services=[service]))
    assert "acl beside_api path /services/api/classify /services/api/pooling" in parts["frontend people"]
    assert "http-request replace-path ^/services/api(/.*)?$ \\1" in parts["backend paths_api"]


def test_a_service_without_such_paths_has_no_backend_for_them(parts: dict[str, list[str]]) -> None:
    assert not any("beside_" in line or "paths_" in line for lines in parts.values() for line in lines)
    assert "backend paths_api" not in parts


def test_long_timeouts_are_those_of_answers_and_websockets(parts: dict[str, list[str]]) -> None:
    timeouts = [
        (name, line) for name, lines in parts.items() for line in lines if line.startswith("timeout ")
    ]
    assert [(name, line) for name, line in timeouts if line.endswith("h")] == [
        ("defaults", "timeout server 1h"),
        ("defaults", "timeout tunnel 1h"),
    ]
