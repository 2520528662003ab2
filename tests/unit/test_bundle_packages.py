"""What is collected with apt is what the roles install, read from their own files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.bundle import packages, systems
from headfirst.control.bundle.needs import Packages
from headfirst.control.bundle.packages import KEPT_OUT, ROLE_VALUES, Wanted
from headfirst.control.bundle.systems import RELEASES, System, parse
from headfirst.control.inventory.variables import role_options

ROLES = Path(__file__).resolve().parents[2] / "roles"
DEBIAN, UBUNTU = parse("debian-12"), parse("ubuntu-24.04")
GPUS = Wanted(gpus=True, rdma=True, kernels=("6.1.0-28-amd64",))
CPUS = Wanted(gpus=False, rdma=False, kernels=())
# What each call of apt in a role installs, and how a bundle has it.
COLLECTED = {
    "docker_engine": {"{{ __docker_engine_packages }}": "__docker_engine_sdk_packages"},
    "host_tuning": {
        "{{ __host_tuning_firewall_packages }}": "__host_tuning_firewall_packages",
        "{{ __host_tuning_clock_packages }}": "__host_tuning_clock_packages",
    },
    "node_tools": {"{{ __node_tools_packages }}": "__node_tools_packages"},
    "nvidia_container_toolkit": {
        "{{ __nvidia_container_toolkit_packages }}": "__nvidia_container_toolkit_names"
    },
    "nvidia_driver": {
        "{{ __nvidia_driver_chosen.packages }}": "__nvidia_driver_sets_of",
        "{{ __nvidia_driver_headers }}": "__nvidia_driver_headers_of",
        "{{ __nvidia_driver_subnet_manager_packages }}": "__nvidia_driver_subnet_manager_packages",
        "{{ __nvidia_driver_build_packages }}": "",  # of the installer, which a bundle refuses
    },
    "podman_engine": {"{{ __podman_engine_packages }}": "__podman_engine_packages"},
    "rdma": {"{{ __rdma_packages }}": "__rdma_packages_of"},
}


class Offered:
    """An archive with these packages; what was asked of it."""

    def __init__(self, *listed: str) -> None:
        self.listed, self.preferences = listed, ""

    def madison(self, names: list[str]) -> str:
        found = [line.split() for line in self.listed]
        return "\n".join(f"{name} | {version} | uri" for name, version in found if name in names)

    def prefer(self, text: str) -> None:
        self.preferences += text


def values(**changes: Any) -> dict[str, Any]:
    return {name: role_options()[name]["default"] for name in ROLE_VALUES} | changes


def _tasks(node: Any) -> Any:
    for item in node if isinstance(node, list) else []:
        yield item
        for part in ("block", "rescue", "always"):
            yield from _tasks(item.get(part))


def test_every_package_that_a_role_installs_is_collected() -> None:
    found: dict[str, set[str]] = {}
    for path in ROLES.glob("*/tasks/*.yml"):
        for task in _tasks(yaml.safe_load(path.read_text())):
            assert "ansible.builtin.apt" not in task, path
            if (apt := task.get("headfirst.serving.apt")) and "name" in apt:
                found.setdefault(path.parents[1].name, set()).add(apt["name"])
    assert found == {role: set(names) for role, names in COLLECTED.items()}
    code = Path(packages.__file__).read_text()
    for role, names in COLLECTED.items():
        for variable in filter(None, names.values()):
            assert variable in packages.role_packages(role)
            assert variable in code


@pytest.mark.parametrize("role", COLLECTED)
def test_what_the_bundle_reads_of_a_role_has_no_template(role: str) -> None:
    assert not re.search(r"\{[{%]", str(packages.role_packages(role)))


def test_every_repository_that_a_role_adds_is_kept_out() -> None:
    adding = {
        path.parents[1].name
        for path in ROLES.glob("*/tasks/*.yml")
        if re.search(r"headfirst\.serving\.apt_key_file", path.read_text())
    }
    assert {f"{role}_add_repository": False for role in adding} == KEPT_OUT
    for name in KEPT_OUT:
        assert role_options()[name]["default"] is True


def test_a_host_without_gpus_gets_no_driver() -> None:
    found = packages.groups(values(), CPUS, DEBIAN, Offered())  # type: ignore[arg-type]
    assert ["python3-docker", "docker.io", "apparmor", "ca-certificates"] in found
    assert ["python3-venv"] in found and not any("nvidia" in name for group in found for name in group)
    assert packages.repositories(values(), CPUS, DEBIAN) == []
    assert packages.sources(values(), CPUS).driver == ""


def test_a_host_with_podman_gets_no_docker() -> None:
    wanted = Wanted(gpus=False, rdma=False, kernels=(), runtime="podman")
    found = packages.groups(values(), wanted, DEBIAN, Offered())  # type: ignore[arg-type]
    names = {name for group in found for name in group}
    assert {"podman", "podman-docker", "python3-docker"} <= names and "docker.io" not in names
    assert packages.sources(values(), wanted) == Packages(podman="distribution")


def test_the_driver_comes_in_both_kinds_with_its_fabric_manager_and_headers() -> None:
    apt = Offered(
        "nvidia-kernel-open-dkms 580.126.20-1",
        "nvidia-kernel-dkms 580.126.20-1",
        "nvidia-driver-cuda 580.126.20-1",
        "nvidia-driver-cuda 590.1.1-1",
        "nvidia-fabricmanager-580 580.126.20-1",
        "nvlsm 2025.10.1-1",
    )
    found = packages.groups(values(), GPUS, DEBIAN, apt)  # type: ignore[arg-type]
    version = "580.126.20-1"
    rest = [f"nvidia-driver-cuda={version}", f"nvidia-fabricmanager-580={version}"]
    assert [f"nvidia-kernel-open-dkms={version}", *rest] in found
    assert [f"nvidia-kernel-dkms={version}", *rest] in found
    assert ["linux-headers-6.1.0-28-amd64"] in found
    assert ["nvlsm", "infiniband-diags"] in found
    assert ["rdma-core", "ibverbs-providers", "infiniband-diags"] in found
    assert "Pin: version 580.126.20-*" in apt.preferences


def test_one_kind_of_driver_where_the_inventory_names_it() -> None:
    apt = Offered("nvidia-headless-570-server 570.1.2-0", "nvidia-utils-570-server 570.1.2-0")
    own = values(
        nvidia_driver_source="distribution", nvidia_driver_kind="proprietary", nvidia_driver_branch="570"
    )
    found = packages.groups(own, GPUS, UBUNTU, apt)  # type: ignore[arg-type]
    assert ["nvidia-headless-570-server=570.1.2-0", "nvidia-utils-570-server=570.1.2-0"] in found


def test_a_branch_that_the_archive_has_not_is_refused() -> None:
    with pytest.raises(InputError, match="no driver 580 for debian-12"):
        packages.groups(values(), GPUS, DEBIAN, Offered())  # type: ignore[arg-type]


def test_a_version_of_the_toolkit_is_asked_for_as_the_role_does() -> None:
    own = values(nvidia_container_toolkit_version="1.19.1", nvidia_driver_branch="")
    found = packages.groups(own, GPUS, DEBIAN, Offered())  # type: ignore[arg-type]
    assert "nvidia-container-toolkit=1.19.1-*" in found[-1]
    assert packages.sources(own, GPUS).driver == ""


@pytest.mark.parametrize(
    "name", ["nvidia_container_toolkit_source", "nvidia_driver_source", "rdma_repository"]
)
def test_folders_of_the_user_are_not_carried(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is your own file or folder"):
        packages.sources(values(**{name: "/srv/packages"}), GPUS)


def test_mlnx_ofed_is_not_carried() -> None:
    with pytest.raises(InputError, match="MLNX_OFED"):
        packages.sources(values(rdma_source="mlnx_ofed"), GPUS)


def test_systems() -> None:
    assert parse("ubuntu-22.04") in RELEASES
    with pytest.raises(InputError, match="no bundle can be made for hosts with fedora-41"):
        parse("fedora-41")
    assert str(System(id="debian", release="12", architecture="aarch64")) == "debian-12 (aarch64)"


TEMPLATE = """\
Suite: devel
BaseURI: https://ports.example.org/ubuntu-ports/
BaseURI-amd64: https://archive.example.org/ubuntu

Suite: devel-security
BaseURI-amd64: https://security.example.org/ubuntu/

Suite: devel-updates
ParentSuite: devel

Suite: old
BaseURI-amd64: https://old.example.org/ubuntu
"""


def test_archives_of_another_system_come_from_python_apt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systems, "this_system", lambda: System(id="debian", release="12"))
    with pytest.raises(NotReadyError, match="not known on this machine"):
        systems.archives(parse("ubuntu-24.04"), tmp_path)
    (tmp_path / "Ubuntu.info").write_text(TEMPLATE)
    signed = "deb [signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg]"
    sections = "main restricted universe multiverse"
    assert systems.archives(parse("ubuntu-24.04"), tmp_path) == [
        f"{signed} https://archive.example.org/ubuntu noble {sections}",
        f"{signed} https://archive.example.org/ubuntu noble-updates {sections}",
        f"{signed} https://security.example.org/ubuntu/ noble-security {sections}",
    ]
