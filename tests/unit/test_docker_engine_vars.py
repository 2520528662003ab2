"""What role docker_engine derives from its variables, on systems that the lab cannot make as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import variables_of_role
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).resolve().parents[2] / "roles" / "docker_engine"


def engine(system: str = "debian", codename: str = "bookworm", **facts: Any) -> dict[str, Any]:
    known = {
        "os_id": system,
        "os_codename": codename,
        "installed": False,
        "config": {},
        "files": {},
        "info": {},
    }
    return {"__docker_engine_state": {"engine": {**known, **facts}}}


def templar(look: dict[str, Any], **variables: Any) -> Templar:
    return variables_of_role.templar(ROLE, **look, **variables)


def value(name: str, look: dict[str, Any], **variables: Any) -> Any:
    return variables_of_role.value(ROLE, name, **look, **variables)


@pytest.mark.parametrize(
    ("system", "codename", "source", "uri"),
    [
        ("ubuntu", "jammy", "docker", "https://download.docker.com/linux/ubuntu"),
        ("ubuntu", "noble", "tuna", "https://mirrors.tuna.tsinghua.edu.cn/docker-ce/linux/ubuntu"),
        ("debian", "bookworm", "aliyun", "https://mirrors.aliyun.com/docker-ce/linux/debian"),
        (
            "ubuntu",
            "jammy",
            "https://mirror.example/docker-ce/linux",
            "https://mirror.example/docker-ce/linux/ubuntu",
        ),
    ],
)
def test_the_source_of_dockers_packages(system: str, codename: str, source: str, uri: str) -> None:
    template = trust_as_template((ROLE / "templates" / "docker.sources.j2").read_text())
    text = templar(engine(system, codename), docker_engine_source=source).template(template)
    assert text.splitlines() == [
        "# Ansible managed",
        "Types: deb",
        f"URIs: {uri}",
        f"Suites: {codename}",
        "Components: stable",
        "Signed-By: /etc/apt/keyrings/headfirst-docker.asc",
    ]


@pytest.mark.parametrize(
    ("source", "installed", "expected"),
    [
        ("distribution", False, ["python3-docker", "docker.io", "apparmor", "ca-certificates"]),
        ("distribution", True, ["python3-docker"]),
        ("ustc", True, ["python3-docker"]),
    ],
)
def test_an_engine_that_is_there_is_kept(source: str, installed: bool, expected: list[str]) -> None:
    look = engine("ubuntu", "jammy", installed=installed)
    assert value("__docker_engine_packages", look, docker_engine_source=source) == expected


def test_dockers_packages_come_from_dockers_repository() -> None:
    packages = value("__docker_engine_packages", engine("ubuntu", "noble"), docker_engine_source="docker")
    assert packages[:3] == ["python3-docker", "docker-ce", "docker-ce-cli"]


def test_daemon_json_is_merged() -> None:
    theirs = {"runtimes": {"nvidia": {"path": "x"}}, "registry-mirrors": ["https://a.example"], "debug": True}
    merged = value(
        "__docker_engine_config",
        engine(config=theirs),
        docker_engine_registry_mirrors=["https://b.example"],
        docker_engine_data_root="/mnt/docker",
        docker_engine_daemon_config={"debug": False},
    )
    assert merged == {
        "runtimes": {"nvidia": {"path": "x"}},
        "registry-mirrors": ["https://b.example", "https://a.example"],
        "debug": False,
        "data-root": "/mnt/docker",
        "live-restore": True,
        "log-driver": "json-file",
        "log-opts": {"max-size": "50m", "max-file": "3"},
    }
    again = value(
        "__docker_engine_config", engine(config=merged), docker_engine_registry_mirrors=["https://b.example"]
    )
    assert again["registry-mirrors"] == merged["registry-mirrors"]


def test_daemon_json_of_other_drivers_swarms_and_presets() -> None:
    merged = value("__docker_engine_config", engine(config={"log-driver": "journald"}))
    assert merged == {"log-driver": "journald", "live-restore": True}
    swarm = engine(info={"Swarm": {"LocalNodeState": "active"}})
    assert "live-restore" not in value("__docker_engine_config", swarm)
    china = value("__docker_engine_config", engine(), docker_engine_registry_mirrors="china")
    assert china["registry-mirrors"] == ["https://docker.m.daocloud.io", "https://docker.211678.top"]


def test_the_proxys_drop_in_escapes_percent() -> None:
    text = value("__docker_engine_dropin_text", engine(), docker_engine_https_proxy="http://u:p%40s@proxy:1")
    assert text == '[Service]\nEnvironment="HTTPS_PROXY=http://u:p%%40s@proxy:1"\n'
    assert value("__docker_engine_dropin_differs", engine()) is False
