"""Which file system holds a folder, and which hosts see the same one: mount lines, real folders, marks."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils import shared_folder
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource
from ansible_collections.headfirst.serving.plugins.plugin_utils.weights_choice import differences, first_alike
from together import together

ROOT = "/dev/nvme0n1p2 / ext4 rw 0 0\n"
# As the clients' kernels write them; paths, names and options are made up.
LINES = {
    "nfs4": "10.0.0.9:/export/models /mnt/share nfs4 rw,vers=4.2,nconnect=8 0 0",
    "nfs": "filer:/vol/models /mnt/share nfs ro,vers=3,hard,proto=tcp 0 0",
    "lustre": "10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch /mnt/share lustre rw 0 0",
    "ceph": "10.0.0.5:6789,10.0.0.6:6789:/ /mnt/share ceph rw,name=admin 0 0",
    "gpfs": "fs1 /mnt/share gpfs rw 0 0",
    "beegfs": "beegfs_nodev /mnt/share beegfs rw,cfgFile=/etc/b.conf 0 0",
    "wekafs": "backend1/default /mnt/share wekafs rw,writecache 0 0",
    "9p": "models /mnt/share 9p rw,access=client,trans=virtio 0 0",
    "virtiofs": "models /mnt/share virtiofs rw 0 0",
    "cifs": r"//filer/models\040share /mnt/share cifs rw,vers=3.1.1 0 0",
    "fuse.glusterfs": "gl1:/models /mnt/share fuse.glusterfs rw,user_id=0 0 0",
    "fuse.hf3fs": "hf3fs.stage /mnt/share fuse.hf3fs rw,user_id=0 0 0",
}


def source(root: Path, mounts: str, boot: str = "b00t") -> HostSource:
    """A host with these mounts; the folders are this machine's."""
    for name, text in {"mounts": mounts, "sys/kernel/random/boot_id": boot}.items():
        path = root / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return HostSource(str(root))


def mounted(root: Path, folder: Path, type_: str = "nfs4", boot: str = "b00t") -> HostSource:
    """A host on which `folder` is a mount of this type."""
    return source(root, f"{ROOT}somewhere {folder} {type_} rw 0 0\n", boot)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "share" / "model"
    (folder / "code").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(os.urandom(300_000))
    (folder / "code" / "model.py").write_text("1")
    return folder


@together("type_", LINES)
def test_types_of_shared_file_systems_are_recognised(type_: str) -> None:
    found = shared_folder.file_system("/mnt/share/model", ROOT + f"{LINES[type_]}\n")
    assert found == type_
    assert type_ in shared_folder.SHARED_TYPES


def test_the_mount_on_top_counts() -> None:
    autofs = "/etc/auto.mnt /mnt autofs rw 0 0\nauto /mnt/a autofs rw 0 0\n"
    nfs = "filer:/a /mnt/a nfs4 rw 0 0\n"
    assert shared_folder.file_system("/mnt/a/model", ROOT + autofs) == "autofs"
    assert shared_folder.file_system("/mnt/a/model", ROOT + autofs + nfs) == "nfs4"
    assert shared_folder.file_system("/mnt/ab", ROOT + autofs + nfs) == "autofs"
    assert shared_folder.file_system("/data", ROOT + autofs + nfs) == "ext4"
    escaped = ROOT + r"f:/a\040b /mnt/my\040share nfs4 rw 0 0"
    assert shared_folder.file_system("/mnt/my share/x", escaped) == "nfs4"
    assert shared_folder.file_system("/", HostSource().read("/proc/mounts")), "of this machine"
    local = {"ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "fuse.mergerfs", "fuseblk"}
    assert local & {*shared_folder.SHARED_TYPES} == set()


def test_hosts_that_mount_the_same_share_see_the_same(model: Path, tmp_path: Path) -> None:
    hosts = [mounted(tmp_path / name, model.parent, boot=name) for name in ("a", "b")]
    seen = [shared_folder.model_folder(str(model), host) for host in hosts]
    assert seen[0] == seen[1]
    assert (seen[0]["type"], seen[0]["shared"], seen[0]["cached"]) == ("nfs4", True, True)
    assert (seen[0]["files"], seen[0]["bytes"], seen[0]["leads_out"]) == (2, 300_001, False)


def sights(first: Path, second: Path, tmp_path: Path, type_: str) -> list[dict[str, Any]]:
    hosts = [mounted(tmp_path / one.name, one.parent, type_, boot=one.name) for one in (first, second)]
    return [
        shared_folder.model_folder(str(one), host) for one, host in zip((first, second), hosts, strict=True)
    ]


@pytest.mark.parametrize("type_", ["ext4", "nfs4"])
def test_a_copy_is_alike_and_not_the_same(model: Path, tmp_path: Path, type_: str) -> None:
    copy = model.with_name("copy")
    shutil.copytree(model, copy)  # keeps the times, as rsync -a does
    first, second = sights(model, copy, tmp_path, type_)
    assert first["shape"] == second["shape"]
    assert first["sight"] != second["sight"]


def test_a_local_folder_of_another_machine_is_not_the_same_even_with_its_inodes(
    model: Path, tmp_path: Path
) -> None:
    hosts = [mounted(tmp_path / name, model.parent, "ext4", boot=name) for name in ("a", "b")]
    first, second = (shared_folder.model_folder(str(model), host) for host in hosts)
    assert first["sight"] != second["sight"]


@pytest.mark.parametrize("offset", [0, 150_000 // 4096 * 4096, 299_999])
def test_the_sight_of_a_file_changes_with_its_sampled_blocks(
    model: Path, tmp_path: Path, offset: int
) -> None:
    host = mounted(tmp_path / "a", model.parent)
    before = shared_folder.model_folder(str(model), host)["sight"]
    path = model / "model.safetensors"
    times = path.stat()
    step = (300_000 - 4096) / 15
    offset = round(round(offset / step) * step) if offset < 299_000 else offset
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert shared_folder.model_folder(str(model), host)["sight"] != before


def test_a_link_to_the_outside_and_a_missing_folder_are_told(model: Path, tmp_path: Path) -> None:
    host = mounted(tmp_path / "a", model.parent)
    (tmp_path / "blob").write_text("x")
    (model / "other.safetensors").symlink_to(tmp_path / "blob")
    assert shared_folder.model_folder(str(model), host)["leads_out"]
    missing = shared_folder.model_folder(str(model / "nothing" / "here"), host)
    assert (missing["exists"], missing["sight"], missing["type"]) == (False, "", "nfs4")


def test_hosts_that_write_into_the_same_share_find_the_same_mark(tmp_path: Path) -> None:
    place = tmp_path / "share" / "models"
    place.parent.mkdir()
    hosts = [mounted(tmp_path / f"host{number}", place.parent, boot=str(number)) for number in range(8)]
    assert shared_folder.place(str(place), mark=False, source=hosts[0])["id"] == ""
    found: list[str] = []
    threads = [
        threading.Thread(
            target=lambda host=host: found.append(
                shared_folder.place(str(place), mark=True, source=host)["id"]
            )  # type: ignore[misc]
        )
        for host in hosts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert list(place.iterdir()) == [place / shared_folder.MARKER]


def test_a_mark_that_was_copied_with_the_folder_is_another_one(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "models", tmp_path / "b" / "models"
    (tmp_path / "a").mkdir()
    host_a, host_b = (
        mounted(tmp_path / "host-a", tmp_path / "a"),
        mounted(tmp_path / "host-b", tmp_path / "b"),
    )
    one = shared_folder.place(str(first), mark=True, source=host_a)
    second.mkdir(parents=True)
    shutil.copy2(first / shared_folder.MARKER, second)
    assert shared_folder.place(str(second), mark=True, source=host_b)["id"] != one["id"]


def test_a_local_folder_gets_no_mark(tmp_path: Path) -> None:
    place = tmp_path / "models"
    place.mkdir()
    hosts = [mounted(tmp_path / name, tmp_path, "ext4", boot=name) for name in ("a", "b")]
    ids = [shared_folder.place(str(place), mark=True, source=host)["id"] for host in (*hosts, hosts[0])]
    assert ids[0] == ids[2] != ids[1]  # containers of one machine share it, other machines do not
    assert not list(place.iterdir())


def test_the_first_of_those_that_are_alike_acts() -> None:
    assert first_alike({"n1": "a", "n2": "b", "n3": "a", "n4": "", "n5": "", "n6": "b"}) == {
        "n1": "n1", "n2": "n2", "n3": "n1", "n4": "n4", "n5": "n5", "n6": "n2"
    }  # fmt: skip


def test_each_file_that_differs_has_its_reason() -> None:
    right = {"same": "1", "changed": "1", "gone": "1"}
    assert differences({"same": "1", "changed": "2", "more": "1"}, right) == [
        "changed has other content",
        "gone is missing",
        "more is not on the head",
    ]
