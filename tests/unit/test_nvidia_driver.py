"""What role nvidia_driver sees of a host, and what it derives for systems that the lab cannot make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import variables_of_role
from ansible_collections.headfirst.serving.plugins.module_utils import host_pci, nvidia_driver
from recorded_hosts import RecordedSource

ROLE = Path(__file__).resolve().parents[2] / "roles" / "nvidia_driver"
SHOW = (
    "systemctl show --timestamp=unix -p Id,ActiveState,UnitFileState,ActiveEnterTimestamp "
    "nvidia-fabricmanager.service nvidia-persistenced.service"
)
# As systemd 249 and 252 print it.
UP = (
    "Id=nvidia-fabricmanager.service\nActiveState=active\nUnitFileState=enabled\nActiveEnterTimestamp=@1741767000\n"
    "\nId=nvidia-persistenced.service\nActiveState=active\nUnitFileState=enabled\nActiveEnterTimestamp=@1741767001\n"
)
STAT = "stat -c %Z /usr/bin/nv-fabricmanager"
RUNNING = "/proc/driver/nvidia/version"
HEALTHY = {SHOW: UP, STAT: "1741766000\n"}


def look(folder: Path, shape: str = "hgx-a100-roce", **changes: Any) -> dict[str, Any]:
    changes["commands"] = HEALTHY | changes.get("commands", {})
    return nvidia_driver.gather(RecordedSource(shape, folder, changes))


@pytest.mark.parametrize("shape", ["hgx-a100-roce", "hgx-h100-infiniband", "h20-roce", "pcie-a100"])
def test_a_driver_that_works(tmp_path: Path, shape: str) -> None:
    found = look(tmp_path, shape)
    assert (found["state"], found["faults"]) == ("works", [])
    assert (found["open_possible"], found["open_needed"]) == (True, False)


def test_a_host_without_gpus(tmp_path: Path) -> None:
    assert look(tmp_path, "cpu-only")["state"] == "no-gpu"


MODINFO = "modinfo -F version nvidia"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.183\n"


@pytest.mark.parametrize(
    ("changes", "state", "fault"),
    [
        (
            {"commands": {MODINFO: "535.183.01\n", "nvidia-smi -q -x": MISMATCH}},
            "outdated",
            "The driver 535.161.08 is running, and 535.183.01 is installed: reboot the host.",
        ),
        (
            {"commands": {MODINFO: "", "nvidia-smi -q -x": ""}},  # its packages were removed
            "absent",
            "NVIDIA's driver is not installed",
        ),
        ({"commands": {MODINFO: ""}}, "outdated", "535.161.08 is running, and none is installed"),
        ({"files": {RUNNING: None}}, "unloaded", "NVIDIA's driver is not running (installed: 535.161.08)"),
        (
            {
                "files": {RUNNING: None},
                "commands": {MODINFO: "", "dkms status": "nvidia/535.161.08: added\n"},
            },
            "unbuilt",
            "dkms has no module for the running kernel",
        ),
        ({"files": {RUNNING: None}, "commands": {MODINFO: ""}}, "absent", "NVIDIA's driver is not installed"),
        (
            {"edits": {"nvidia-smi -q -x": [('<gpu id="00000000:07:00.0">', '<gpu id="00000000:08:00.0">')]}},
            "faulty",
            "nvidia-smi does not list the GPU at 0000:07:00.0",
        ),
        ({"commands": {"nvidia-smi -q -x": "No devices were found\n"}}, "faulty", "No devices were found"),
        (
            {"edits": {"nvidia-smi -q -x": [("mode>Enabled", "mode>Disabled")]}},
            "works",
            "Persistence mode is off",
        ),
        (
            {"commands": {"nv-fabricmanager --version": "Fabric Manager version is : 535.183.01\n"}},
            "works",
            "The fabric manager is 535.183.01, and the driver 535.161.08",
        ),
        ({"commands": {SHOW: ""}}, "works", "nvidia-fabricmanager is not active and enabled"),
        # Installed after it was started, so another one is running.
        ({"commands": {STAT: "1741768000\n"}}, "works", "nvidia-fabricmanager is not active and enabled"),
        ({"commands": {"apt-mark showhold": ""}}, "works", "An upgrade would move nvidia-driver-535-server"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, Any], state: str, fault: str) -> None:
    found = look(tmp_path, **changes)
    assert found["state"] == state
    assert any(fault in sentence for sentence in found["faults"]), found["faults"]


def test_nouveau_is_seen_where_it_holds_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "sys/bus/pci/drivers/nouveau").mkdir(parents=True)
    device = "/sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:07:00.0"
    source = RecordedSource("hgx-a100-roce", tmp_path, {"files": {RUNNING: None}, "commands": HEALTHY})
    (tmp_path / device.lstrip("/") / "driver").symlink_to(tmp_path / "sys/bus/pci/drivers/nouveau")
    found = nvidia_driver.gather(source)
    assert found["nouveau"]
    assert "The module nouveau holds the GPUs" in found["faults"][0]


@pytest.mark.parametrize(
    ("ids", "possible", "needed"),
    [
        (["0x20b2", "0x20b2"], True, False),  # A100
        (["0x2330"], True, False),  # H100
        (["0x1e30"], True, False),  # Quadro RTX 6000, Turing
        (["0x1db5"], False, False),  # V100
        (["0x1db5", "0x20b2"], False, False),
        (["0x2901"], True, True),  # B200
    ],
)
def test_generations(ids: list[str], possible: bool, needed: bool) -> None:
    assert nvidia_driver.generations(ids) == {"open_possible": possible, "open_needed": needed}


# Lines of dkms 2.8 (Ubuntu 20.04), 3.0 (22.04, Debian 12), and of other modules of NVIDIA's.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "nvidia/580.126.20, 5.15.0-113-generic, x86_64: installed\n",
            ("580.126.20", "5.15.0-113-generic", "installed"),
        ),
        (
            "nvidia, 510.47.03, 5.4.0-109-generic, x86_64: built\n",
            ("510.47.03", "5.4.0-109-generic", "built"),
        ),
        (
            "nvidia-current/535.183.01, 6.1.0-18-amd64, x86_64: installed\n",
            ("535.183.01", "6.1.0-18-amd64", "installed"),
        ),
        ("nvidia/580.126.20: added\n", ("580.126.20", "", "added")),
        ("nvidia-fs/2.17.5, 5.15.0-113-generic, x86_64: installed\n", None),
    ],
)
def test_lines_of_dkms(text: str, expected: tuple[str, str, str] | None) -> None:
    keys = ("version", "kernel", "state")
    assert nvidia_driver.dkms(text) == ([dict(zip(keys, expected, strict=True))] if expected else [])


def value(name: str, system: str = "ubuntu", version: str = "22.04", **variables: Any) -> Any:
    """A variable of the role on a host with A100s and NVSwitches and no driver."""
    host = {"os": system, "os_version": version, "architecture": "x86_64", "driver": {"installed": ""}}
    host |= {"open_possible": True, "open_needed": False, "nvswitches": 6, **variables.pop("host", {})}
    return variables_of_role.value(ROLE, name, __nvidia_driver_state={"host": host}, **variables)


@pytest.mark.parametrize(
    ("system", "version", "source", "uri"),
    [
        (
            "ubuntu",
            "22.04",
            "nvidia",
            "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64",
        ),
        ("ubuntu", "24.04", "aliyun", "https://mirrors.aliyun.com/nvidia-cuda/ubuntu2404/x86_64"),
        ("debian", "12", "https://m.example/cuda", "https://m.example/cuda/debian12/x86_64"),
    ],
)
def test_the_repository(system: str, version: str, source: str, uri: str) -> None:
    assert value("__nvidia_driver_repository", system, version, nvidia_driver_source=source) == uri


@pytest.mark.parametrize(
    ("system", "source", "branch", "kind", "first"),
    [
        ("ubuntu", "nvidia", "580", "auto", "nvidia-headless-580-open nvidia-utils-580"),
        ("ubuntu", "nvidia", "535", "auto", "nvidia-headless-535 nvidia-utils-535"),
        (
            "ubuntu",
            "distribution",
            "580.126",
            "proprietary",
            "nvidia-headless-580-server nvidia-utils-580-server",
        ),
        (
            "debian",
            "distribution",
            "535",
            "open",
            "nvidia-open-kernel-dkms nvidia-smi nvidia-persistenced libcuda1",
        ),
    ],
)
def test_the_names_of_packages(system: str, source: str, branch: str, kind: str, first: str) -> None:
    choice = {"nvidia_driver_source": source, "nvidia_driver_branch": branch, "nvidia_driver_kind": kind}
    assert value("__nvidia_driver_sets", system, **choice)[0] == first.split()


def test_volta_gets_the_proprietary_module_and_blackwell_the_open_one() -> None:
    assert value("__nvidia_driver_open", host={"open_possible": False}) is False
    assert value("__nvidia_driver_open", host={"open_needed": True}, nvidia_driver_branch="570") is True


def test_the_installers_version_is_in_its_name() -> None:
    run = "https://us.download.nvidia.com/tesla/535.230.02/NVIDIA-Linux-x86_64-535.230.02.run"
    assert value("__nvidia_driver_wanted", nvidia_driver_run_file=run) == "535.230.02"
    assert value("__nvidia_driver_wanted", nvidia_driver_run_file="/srv/driver.run") == ""


def test_the_fabric_manager_is_that_of_the_installed_driver() -> None:
    names = value("__nvidia_driver_managers", host={"driver": {"installed": "535.161.08"}})
    assert names == ["nvidia-fabricmanager-535", "nvidia-fabricmanager"]
    assert value("__nvidia_driver_managers", host={"nvswitches": 0}) == []


@pytest.mark.parametrize(("installed", "faults"), [("", 1), ("/opt/nvidia\n", 0)])
def test_nvlink_5_requires_the_subnet_manager(tmp_path: Path, installed: str, faults: int) -> None:
    plain = RecordedSource("hgx-h100-infiniband", tmp_path / "plain")
    devices = host_pci.devices(plain)
    files = {f"{card.path}/vpd": "SW_MNG" for card in host_pci.hcas(devices)[:1]}
    files |= {f"{gpu.path}/device": "0x2901" for gpu in host_pci.gpus(devices)}
    files |= {nvidia_driver.SUBNET_MANAGER: installed, f"{nvidia_driver.UMAD}/umad0/ibdev": "mlx5_0"}
    host = nvidia_driver.gather(RecordedSource("hgx-h100-infiniband", tmp_path / "b200", {"files": files}))
    assert host["nvlink5"]
    assert sum("nvlsm" in fault for fault in host["faults"]) == faults
