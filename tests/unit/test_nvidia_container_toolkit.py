"""What role nvidia_container_toolkit makes of a host, and what it derives from its variables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import variables_of_role
from ansible.template import trust_as_template
from ansible_collections.headfirst.serving.plugins.module_utils import apt_sources
from ansible_collections.headfirst.serving.plugins.module_utils import nvidia_container_toolkit as toolkit
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource
from recorded_hosts import RecordedSource

ROLE = Path(__file__).resolve().parents[2] / "roles" / "nvidia_container_toolkit"
DRIVER = "550.144.03"
LIST = "dpkg-query -W -f ${db:Status-Status} ${Package} ${Version}\\n " + " ".join(toolkit.PACKAGES)
HOLD, TIMES = "apt-mark showhold", f"stat -c %Y {toolkit.INSTALLED} {toolkit.STARTED}"
UNITS = {f"systemctl is-enabled {unit}": "enabled\n" for unit in toolkit.UNITS}
RUNTIME = json.dumps({"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}, "live-restore": True})
INFO: dict[str, Any] = {
    "Runtimes": {"nvidia": {}, "runc": {}},
    "CgroupDriver": "cgroupfs",
    "ContainersRunning": 2,
}
READY_COMMANDS = {
    LIST: "".join(f"installed {name} 1.19.1-1\n" for name in toolkit.PACKAGES),
    HOLD: "\n".join(toolkit.PACKAGES),
    TIMES: "100\n200\n",
    **UNITS,
}
READY_FILES = {"/etc/docker/daemon.json": RUNTIME, "/var/run/cdi/nvidia.yaml": f"libcuda.so.{DRIVER}"}


def look(
    folder: Path,
    version: str = "",
    *,
    files: Any = None,
    commands: Any = None,
    info: Any = None,
    version_answer: Any = None,
) -> dict[str, Any]:
    changes = {
        "files": {**READY_FILES, **(files or {})},
        "commands": {**READY_COMMANDS, **(commands or {})},
        "docker": {"/info": {**INFO, **(info or {})}, "/version": version_answer or {}},
    }
    source = RecordedSource("pcie-a100", folder, changes)
    return dict(
        toolkit.gather(source, version, "https://mirror.example/lib", "/etc/apt/sources.list.d/own.sources")
    )


def test_a_host_without_a_gpu_has_nothing_to_do(tmp_path: Path) -> None:
    found = toolkit.gather(RecordedSource("cpu-only", tmp_path), "", "", "")
    assert found == {"os": "debian", "gpus": 0, "todo": []}


def test_nothing_is_left_where_all_is_there(tmp_path: Path) -> None:
    found = look(tmp_path)
    assert (found["gpus"], found["driver"], found["todo"]) == (4, DRIVER, [])
    assert found["engine"]["live_restore"] and found["engine"]["containers"] == 2


@pytest.mark.parametrize(
    ("changes", "todo"),
    [
        ({"commands": {LIST: "installed libnvidia-container1 1.19.1-1\n"}}, ["packages"]),
        ({"commands": {LIST: READY_COMMANDS[LIST].replace("installed", "config-files", 1)}}, ["packages"]),
        ({"version": "1.18.0"}, ["packages"]),
        ({"version": "1.19.1"}, []),
        ({"commands": {HOLD: "nvidia-container-toolkit\n"}}, ["hold"]),
        ({"files": {"/etc/docker/daemon.json": "{}"}}, ["runtime"]),
        ({"files": {"/etc/docker/daemon.json": "{not JSON"}}, ["runtime"]),
        ({"info": {"Runtimes": {"runc": {}}}}, ["runtime"]),
        # The engine started before the toolkit's hook was there, so it refuses --gpus.
        ({"commands": {TIMES: "300\n200\n"}}, ["runtime"]),
        ({"info": {"CgroupDriver": "systemd"}}, ["links"]),
        ({"info": {"CgroupDriver": "systemd"}, "files": {toolkit.LINKS_RULE: "ACTION"}}, []),
        ({"files": {"/var/run/cdi/nvidia.yaml": "libcuda.so.535.1.1"}}, ["cdi"]),
        ({"commands": {f"systemctl is-enabled {toolkit.UNITS[0]}": "disabled\n"}}, ["cdi"]),
    ],
)
def test_what_is_left_to_do(tmp_path: Path, changes: dict[str, Any], todo: list[str]) -> None:
    assert look(tmp_path, **changes)["todo"] == todo


def test_podman_gets_the_gpus_by_cdi_alone(tmp_path: Path) -> None:
    podman = {
        "version_answer": {"Components": [{"Name": "Podman Engine"}]},
        "info": {"Runtimes": {"crun": {}}, "CgroupDriver": "systemd"},
        "files": {"/etc/docker/daemon.json": ""},
    }
    found = look(tmp_path / "with", **podman)  # type: ignore[arg-type]
    assert found["engine"]["podman"] and found["todo"] == []
    podman["files"] = {"/var/run/cdi/nvidia.yaml": ""}
    assert look(tmp_path / "without", **podman)["todo"] == ["cdi"]  # type: ignore[arg-type]


def test_a_toolkit_without_units_of_its_own(tmp_path: Path) -> None:
    none = dict.fromkeys(UNITS, "not-found\n")
    found = look(tmp_path, commands=none)
    assert found["cdi"]["units"] == [] and found["todo"] == []


@pytest.mark.parametrize(
    ("path", "text", "known"),
    [
        ("toolkit.list", "deb [signed-by=/k] https://mirror.example/lib/stable/deb/$(ARCH) /", True),
        ("toolkit.sources", "URIs: https://mirror.example/lib/stable/deb/amd64", True),
        ("toolkit.list", "# deb https://mirror.example/lib/stable/deb/$(ARCH) /", False),
        ("toolkit.list", "deb https://mirror.example/library/stable/deb /", False),
        ("own.sources", "URIs: https://mirror.example/lib/stable/deb/amd64", False),
        ("toolkit.list.bak", "deb https://mirror.example/lib/stable/deb /", False),
    ],
)
def test_a_repository_that_the_host_has_already(tmp_path: Path, path: str, text: str, known: bool) -> None:
    assert look(tmp_path, files={f"{apt_sources.FOLDER}/{path}": text})["repository_known"] is known


def test_the_drivers_mirror_has_a_folder_for_each_system(tmp_path: Path) -> None:
    mirror = "https://developer.download.nvidia.com/compute/cuda/repos"
    sources = tmp_path / "etc/apt/sources.list"
    sources.parent.mkdir(parents=True)
    sources.write_text(f"deb [signed-by=/k] {mirror}/ubuntu2204/x86_64/ /\n")
    assert apt_sources.has(HostSource(str(tmp_path)), mirror, "")


def value(expression: str, installed: dict[str, str] | None = None, **variables: Any) -> Any:
    facts = {"__nvidia_container_toolkit_state": {"host": {"packages": installed or {}}}}
    return variables_of_role.templar(ROLE, **facts, **variables).template(trust_as_template(expression))


@pytest.mark.parametrize(
    ("installed", "version", "first"),
    [
        ({}, "", "nvidia-container-toolkit=1.19.0-*"),
        ({}, "1.19.1", "nvidia-container-toolkit=1.19.1-*"),
        ({}, "1.19.1-1", "nvidia-container-toolkit=1.19.1-1"),
        ({"libnvidia-container1": "1.17.8-1"}, "", "nvidia-container-toolkit=1.17.8-1"),
        ({"libnvidia-container1": "1.17.8-1"}, "1.19.1", "nvidia-container-toolkit=1.19.1-*"),
    ],
)
def test_the_packages_are_of_one_version(installed: dict[str, str], version: str, first: str) -> None:
    names = value(
        "{{ __nvidia_container_toolkit_packages }}", installed, nvidia_container_toolkit_version=version
    )
    assert len(names) == 4 and names[0] == first


@pytest.mark.parametrize("source", ["distribution", "/srv/packages"])
def test_other_sources_give_the_newest(source: str) -> None:
    (first, *_) = value(
        "{{ __nvidia_container_toolkit_packages }}", {}, nvidia_container_toolkit_source=source
    )
    assert first == "nvidia-container-toolkit"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        (
            "nvidia",
            [
                "URIs: https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH)",
                "Suites: /",
                "Signed-By: /etc/apt/keyrings/headfirst-nvidia-container-toolkit.asc",
            ],
        ),
        (
            "/srv/debs",
            ["URIs: file:/var/lib/headfirst/nvidia-container-toolkit/apt", "Suites: ./", "Trusted: yes"],
        ),
    ],
)
def test_the_source_of_the_packages(source: str, lines: list[str]) -> None:
    text = value(
        (ROLE / "templates" / "toolkit.sources.j2").read_text(), nvidia_container_toolkit_source=source
    )
    assert text.splitlines()[1:] == ["Types: deb", *lines]
