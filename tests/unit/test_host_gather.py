"""Facts of hosts that were composed after real machines (data/hosts/README.md says from which)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils import host_driver, host_gpu, host_pci
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource
from recorded_hosts import facts


@pytest.mark.parametrize(
    ("shape", "gpus", "name", "nvswitches", "hcas"),
    [
        ("hgx-a100-roce", 8, "NVIDIA A100-SXM4-80GB", 6, 5),
        ("hgx-a100-infiniband", 8, "NVIDIA A100-SXM4-80GB", 6, 5),
        ("hgx-h100-infiniband", 8, "NVIDIA H100 80GB HBM3", 4, 10),
        ("h20-roce", 8, "NVIDIA H20", 4, 5),
        ("pcie-a100", 4, "NVIDIA A100 80GB PCIe", 0, 1),
    ],
)
def test_machines_with_gpus(
    tmp_path: Path, shape: str, gpus: int, name: str, nvswitches: int, hcas: int
) -> None:
    found = facts(shape, tmp_path)
    assert [gpu["name"] for gpu in found["gpus"]] == [name] * gpus
    assert sorted(gpu["bus"] for gpu in found["gpus"]) == found["gpus_on_pci"]
    assert found["nvswitches"] == nvswitches
    assert len(found["hcas"]) == len(found["rdma_devices"]) == hcas
    assert found["driver"]["running"] == found["driver"]["installed"] == found["smi_driver"]
    assert found["driver"]["fabric_manager"] == (found["smi_driver"] if nvswitches else "")
    assert found["driver"]["unheld"] == []
    assert found["docker"]["runtimes"] == ["io.containerd.runc.v2", "nvidia", "runc"]


def test_cards_that_manage_nvlink_5_are_switches_and_no_rdma(tmp_path: Path) -> None:
    """HGX B200: no NVSwitch is on PCI; ConnectX functions with SW_MNG in their VPD are no network cards."""
    plain = facts("hgx-h100-infiniband", tmp_path / "plain")
    cards = [(hca["name"], hca["pci"]) for hca in plain["hcas"]]
    devices = host_pci.devices(HostSource(str(tmp_path / "plain")))
    paths = {device.address: device.path for device in devices}
    vpd = {f"{paths[address]}/vpd": "ID: CX7 SW_MNG" for _name, address in cards[:2]}
    gone = {f"{switch.path}/class": "0x050000" for switch in host_pci.nvswitches(devices)}
    ids = {f"{paths[address]}/device": "0x2901" for address in plain["gpus_on_pci"]}
    found = facts("hgx-h100-infiniband", tmp_path / "b200", changes={"files": vpd | gone | ids})
    assert found["nvswitches"] == 2
    assert [hca["name"] for hca in found["hcas"]] == [name for name, _address in cards[2:]]
    assert len(found["hcas_on_pci"]) == len(plain["hcas_on_pci"]) - 2
    older = facts("hgx-h100-infiniband", tmp_path / "older", changes={"files": vpd})
    assert len(older["hcas"]) == len(cards)


def test_a_machine_without_gpus_or_rdma(tmp_path: Path) -> None:
    found = facts("cpu-only", tmp_path, peers=("10.0.0.2",))
    assert (found["gpus"], found["hcas"], found["nvswitches"], found["smi_driver"]) == ([], [], 0, "")
    assert found["routes"] == {"10.0.0.2": {"nic": "ens3", "source": "10.0.0.1"}}
    assert [(nic["name"], nic["kind"]) for nic in found["nics"]] == [
        ("ens3", "physical"),
        ("docker0", "bridge"),
    ]
    assert (found["os"], found["cores"], found["disk_type"]) == ("debian-12", 1, "xfs")


def test_distances_are_those_of_nvidia_smi_topo(tmp_path: Path) -> None:
    hcas = {hca["name"]: hca["gpu_distances"] for hca in facts("hgx-a100-roce", tmp_path)["hcas"]}
    assert hcas["mlx5_1"] == ["PIX", "PIX", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS"]
    assert hcas["mlx5_0"] == ["NODE"] * 4 + ["SYS"] * 4


def test_gids_have_types_addresses_and_interfaces(tmp_path: Path) -> None:
    (hca,) = facts("pcie-a100", tmp_path)["hcas"]
    (port,) = hca["ports"]
    assert (port["state"], port["physical"], port["gbit"], port["link"]) == (
        "ACTIVE",
        "LinkUp",
        100,
        "Ethernet",
    )
    assert [(gid["index"], gid["type"], gid["address"]) for gid in port["gids"]] == [
        (0, "IB/RoCE v1", ""),
        (1, "RoCE v2", ""),
        (2, "IB/RoCE v1", "192.168.20.31"),
        (3, "RoCE v2", "192.168.20.31"),
    ]
    assert {gid["nic"] for gid in port["gids"]} == {"ens5np0"}


# As dmesg shows it; NVIDIA/open-gpu-kernel-modules issue 1355 has the like.
XID = (
    "[1399.140318] NVRM: GPU at PCI:0000:07:00: GPU-34d7319c-5b19-1e75-186d-c187099e4fe5\n"
    "[1399.140323] NVRM: Xid (PCI:0000:07:00): 79, pid=2096908, name=python3, GPU has fallen off the bus.\n"
    "[1399.140655] NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.\n"
)


def test_faults_of_the_kernels_log_are_told_once() -> None:
    (xid,) = host_gpu.xids(XID)
    assert (xid["bus"], xid["xid"]) == ("0000:07:00", 79)
    assert xid["text"].endswith("GPU has fallen off the bus.")


def test_an_nvidia_smi_that_fails_says_why() -> None:
    found = host_gpu.parse(
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.126\n"
    )
    assert found["gpus"] == []
    assert found["smi_error"].startswith("Failed to initialize NVML: Driver/library version mismatch")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.135  Fri Jan 10 20:00:00 UTC 2025", "550.135"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build", "580.95.05"),
        ("Fabric Manager version is : 535.161.08", "535.161.08"),
        ("", ""),
    ],
)
def test_versions_are_found_in_their_sentences(text: str, expected: str) -> None:
    assert host_driver.version(text) == expected


def config_space(*capabilities: tuple[int, int]) -> bytes:
    """A PCI Express configuration space with extended capabilities: (ID, control register)."""
    space = bytearray(4096)
    for number, (id, control) in enumerate(capabilities):
        at = 0x100 + 0x20 * number
        following = at + 0x20 if number + 1 < len(capabilities) else 0
        space[at : at + 4] = (following << 20 | 1 << 16 | id).to_bytes(4, "little")
        space[at + 6 : at + 8] = control.to_bytes(2, "little")
    return bytes(space)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (config_space((0x0001, 0xFFFF), (0x000D, 0x001D)), 0x1D),
        (config_space((0x0001, 0xFFFF)), 0),
        (config_space()[:64], 0),  # what a user who is not root may read
    ],
)
def test_the_acs_register_is_found(space: bytes, expected: int) -> None:
    assert host_pci.acs_control(space) == expected


def test_ethernet_cards_with_a_driver_for_roce_are_listed(tmp_path: Path) -> None:
    cards = {"0000:01:00.0": "ice", "0000:02:00.0": "bnxt_en", "0000:03:00.0": "tg3", "0000:04:00.0": "igb"}
    for address, driver in cards.items():
        card, module = (
            tmp_path / f"sys/bus/pci/{path}" for path in (f"devices/{address}", f"drivers/{driver}")
        )
        for folder in (card, module):
            folder.mkdir(parents=True)
        (card / "driver").symlink_to(module)
        (card / "class").write_text("0x020000\n")
    source = HostSource(str(tmp_path))
    assert host_pci.roce(source, host_pci.devices(source)) == ["0000:01:00.0", "0000:02:00.0"]


def test_bridges_above_gpus_that_redirect_are_listed(tmp_path: Path) -> None:
    switch = "/sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0"
    files = {
        f"{bridge}/config": f"hex:{config_space((0x000D, 0x001D)).hex()}"
        for bridge in (
            f"{switch}/0000:02:00.0",
            f"{switch}/0000:02:04.0",
        )  # above a GPU, above a network card
    }
    assert facts("hgx-a100-roce", tmp_path, changes={"files": files})["acs_bridges"] == ["0000:02:00.0"]


def test_what_is_not_there_reads_as_empty_and_what_hangs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source: Any = HostSource(str(tmp_path))
    assert (source.read("/proc/none"), source.names("/sys/none"), source.real("/sys/none")) == ("", [], "")
    assert source.run("no-such-command") == ""
    monkeypatch.setattr(
        "ansible_collections.headfirst.serving.plugins.module_utils.host_source.COMMAND_TIMEOUT_S", 0.05
    )
    assert source.run("sleep", "5") == ""
    assert source.stuck == ["sleep 5"]
