"""What role rdma makes of a host: the modules it needs, what is left to do, what is wrong with its ports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils import rdma
from recorded_hosts import RecordedSource

INBOX = ["rdma-core", "ibverbs-providers"]
ROCE = "/sys/devices/pci0000:4a/0000:4a:02.0/0000:4b:00.0/infiniband/mlx5_0/ports/1"


def look(folder: Path, shape: str, devices: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    return dict(rdma.gather(RecordedSource(shape, folder, changes), INBOX, list(devices)))


def installed(*names: str) -> dict[str, str]:
    form = "${db:Status-Status} ${Package} ${Version}\\n"
    line = f"dpkg-query -W -f {form} rdma-core ibverbs-providers ofed-scripts"
    return {line: "".join(f"installed {name} 1.0\n" for name in names)}


def loaded(*names: str) -> dict[str, str]:
    return {f"/sys/module/{name}/initstate": "live" for name in names}


def test_a_host_without_hardware_has_nothing_to_do(tmp_path: Path) -> None:
    found = look(tmp_path, "cpu-only")
    assert (found["cards"], found["hcas"], found["todo"], found["problems"]) == ([], [], [], [])


def test_cards_that_no_driver_has_taken(tmp_path: Path) -> None:
    found = look(tmp_path, "pcie-a100", files={"/sys/class/infiniband/mlx5_0": None})
    assert found["todo"] == ["packages", "modules", "peer_memory"]
    assert found["modules"] == ["ib_uverbs", "rdma_ucm", "ib_umad", "mlx5_ib"]
    assert "No driver is bound to the RDMA cards" in found["problems"][0]


def test_nothing_is_left_where_all_is_there(tmp_path: Path) -> None:
    names = ("ib_uverbs", "rdma_ucm", "ib_umad", "mlx5_ib", "nvidia_peermem")
    packages = installed("rdma-core", "ibverbs-providers")
    files = {**loaded(*names), rdma.PERSISTENT: "\n".join(names)}
    found = look(tmp_path / "all", "pcie-a100", files=files, commands=packages)
    assert (found["todo"], found["problems"]) == ([], [])
    assert found["ports"] == ["mlx5_0/1: ACTIVE, Ethernet, 100 Gbit/s"]
    assert found["notes"] == ["GPUDirect: by nvidia_peermem."]
    # What only the next boot would lack is left.
    found = look(tmp_path / "loaded", "pcie-a100", files=loaded(*names))
    assert found["todo"] == ["packages", "modules", "peer_memory"]


def test_modules_that_are_built_in_count_as_loaded(tmp_path: Path) -> None:
    built_in = {
        "/lib/modules/6.8.0-55-generic/modules.builtin": "kernel/drivers/infiniband/hw/mlx5/mlx5-ib.ko"
    }
    source = RecordedSource("pcie-a100", tmp_path, {"files": {**loaded("ib_uverbs"), **built_in}})
    assert rdma.modules(source) == {"ib_uverbs", "mlx5_ib"}


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    assert "packages" not in look(tmp_path / "a", "pcie-a100", commands=installed("ofed-scripts"))["todo"]
    assert "GPUDirect is off" in look(tmp_path / "b", "pcie-a100", files=loaded("ib_uverbs"))["notes"][0]
    found = look(tmp_path / "c", "hgx-h100-infiniband")
    assert not found["peer_memory"]
    assert found["notes"] == ["GPUDirect: by DMA-BUF, as the NVIDIA driver is the open one."]


@pytest.mark.parametrize(
    ("shape", "files", "says"),
    [
        ("pcie-a100", {f"{ROCE}/state": "1: DOWN", f"{ROCE}/phys_state": "2: Polling"}, "(DOWN, Polling)"),
        (
            "pcie-a100",
            {f"{ROCE}/gid_attrs/types/3": "IB/RoCE v1"},
            "give its interface ens5np0 an IPv4 address",
        ),
        (
            "pcie-a100",
            {f"{ROCE}/state": "2: INIT", f"{ROCE}/link_layer": "InfiniBand"},
            "waits for a subnet manager",
        ),
        # An Ethernet port waits for no subnet manager.
        ("pcie-a100", {f"{ROCE}/state": "2: INIT"}, "No port of mlx5_0 is active (INIT, LinkUp)"),
        ("pcie-a100", {"/dev/infiniband/uverbs0": None}, "no /dev/infiniband/uverbs*"),
    ],
)
def test_what_is_wrong_with_a_port(tmp_path: Path, shape: str, files: dict[str, str], says: str) -> None:
    (problem,) = look(tmp_path, shape, files=files)["problems"]
    assert says in problem


def test_named_devices_must_be_active_or_else_any(tmp_path: Path) -> None:
    down = {"/sys/devices/pci0000:bf/0000:bf:01.0/0000:c0:00.0/infiniband/mlx5_1/ports/1/state": "1: DOWN"}
    named = look(tmp_path / "named", "hgx-h100-infiniband", ("mlx5_0", "mlx5_1"), files=down)
    assert "No port of mlx5_1 is active" in named["problems"][0]
    any_of_them = look(tmp_path / "any", "hgx-h100-infiniband", files=down)
    assert not any_of_them["problems"]
    assert "No port of mlx5_1 is active" in any_of_them["notes"][-1]
    some = look(tmp_path / "some", "hgx-h100-infiniband", ("mlx5_0", "mlx5_3"), files=down)
    assert not some["problems"]
    (problem,) = look(tmp_path / "missing", "pcie-a100", ("mlx5_9",))["problems"]
    assert problem == "There is no RDMA device mlx5_9; there are: mlx5_0."


def test_a_running_module_of_another_ofed_needs_a_reboot(tmp_path: Path) -> None:
    version, commands = "/sys/module/mlx5_core/version", {"modinfo -F version mlx5_core": "25.10\n"}
    same = look(tmp_path / "a", "pcie-a100", files={version: "25.10"}, commands=commands)
    other = look(tmp_path / "b", "pcie-a100", files={version: "24.10"}, commands=commands)
    assert not same["reboot"]
    assert other["reboot"] == "The running mlx5_core is 24.10, the installed one 25.10."
    assert not look(tmp_path / "c", "pcie-a100", commands=commands)["reboot"], "it is not loaded yet"
