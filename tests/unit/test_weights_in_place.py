"""A folder that is not ours is served where it is: proven, linked, never written to; others receive."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.node.weights.cli import main
from headfirst.node.weights.fetch.fetch_run import fetch
from headfirst.node.weights.fetch.fetching import FetchRequest
from headfirst.node.weights.files import is_in_place, notes_beside
from headfirst.node.weights.in_place import use_in_place
from headfirst.node.weights.proof import manifest as manifests
from headfirst.node.weights.proof.verify import verify
from headfirst.node.weights.status import look
from transfers import Members
from weights_checkpoints import SHARD_1, two_shards, write_checkpoint


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "share" / "model", two_shards())
    return tmp_path / "share" / "model"


def state(folder: Path) -> dict[str, tuple[int, int, int]]:
    """All that writing would change, of the folder too."""
    paths = [folder, *folder.rglob("*")]
    return {
        str(path): (stat.st_mtime_ns, stat.st_ino, stat.st_size) for path in paths for stat in [path.stat()]
    }


def origin(model: Path) -> dict[str, str]:
    return {**FetchRequest("path", str(model)).origin, "pinned": "now"}


def test_a_folder_is_proven_linked_and_not_written_to(model: Path, tmp_path: Path) -> None:
    before, link = state(model), tmp_path / "models" / "served"
    manifest, changed = use_in_place(model, link, origin(model))
    assert changed
    assert link.readlink() == model
    assert verify(link, deep=True) == manifest
    assert use_in_place(model, link, origin(model)) == (manifest, False)
    assert state(model) == before


def test_what_is_linked_is_held_and_answers(model: Path, tmp_path: Path) -> None:
    request, link = FetchRequest("path", str(model)), tmp_path / "models" / "served"
    manifest, _ = use_in_place(model, link, origin(model))
    found = look(request, link, None)
    assert (found["digest"], found["answers"], found["pinned"]) == (manifest.digest, True, "now")
    assert (found["in_place"], found["occupied"]) == (True, False)
    with (model / SHARD_1).open("r+b") as file:
        file.write(b"12345678")
    assert look(request, link, None)["changed"] == [SHARD_1]


def test_with_the_manifest_of_another_node_no_file_is_read(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, _ = use_in_place(model, tmp_path / "node1" / "served", origin(model))
    monkeypatch.setattr(manifests, "fingerprint", lambda *_: pytest.fail("a file was read"))
    link = tmp_path / "node2" / "served"
    assert use_in_place(model, link, origin(model), manifest) == (manifest, True)
    assert look(FetchRequest("path", str(model)), link, None)["digest"] == manifest.digest


def test_a_manifest_of_other_files_is_refused(model: Path, tmp_path: Path) -> None:
    manifest, _ = use_in_place(model, tmp_path / "node1" / "served", origin(model))
    (model / "tokenizer.json").write_text("x" * 999)
    with pytest.raises(NotReadyError, match="not those that another node has read"):
        use_in_place(model, tmp_path / "node2" / "served", origin(model), manifest)
    assert manifests.load(tmp_path / "node2" / "served") is None


def test_a_hub_cache_whose_files_are_links_is_refused(model: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "1"
    shutil.copytree(model, snapshot)
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.mkdir()
    (snapshot / SHARD_1).rename(blobs / "1")
    (snapshot / SHARD_1).symlink_to(blobs / "1")
    with pytest.raises(NotReadyError, match=f"{SHARD_1} is a symbolic link that leads out"):
        use_in_place(snapshot, tmp_path / "models" / "served", origin(snapshot))
    assert not (tmp_path / "models").exists()


def test_a_manifest_in_the_folder_is_compared(model: Path, tmp_path: Path) -> None:
    brought = tmp_path / "brought"
    fetch(FetchRequest("path", str(model)), brought)
    spoilt = brought / SHARD_1
    spoilt.write_bytes(spoilt.read_bytes()[:-1] + b"x")
    with pytest.raises(NotReadyError, match=rf"1 file\(s\) differ from .*: {SHARD_1}"):
        use_in_place(brought, tmp_path / "models" / "served", origin(brought))
    assert manifests.load(tmp_path / "models" / "served") is None


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_what_is_in_the_way_is_left_alone(model: Path, tmp_path: Path, kind: str) -> None:
    link = tmp_path / "models" / "served"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "share") if kind == "link" else link.mkdir()
    with pytest.raises(InputError):
        use_in_place(model, link, origin(model))
    assert link.is_symlink() == (kind == "link")


def test_a_node_with_other_files_gets_a_folder_of_its_own(model: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 2)
    other = tmp_path / "own" / "model"
    shutil.copytree(model, other)
    with (other / SHARD_1).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    before = state(model), state(other)
    manifest, _ = use_in_place(model, members.home(0) / "served", origin(model))
    use_in_place(other, members.home(1) / "served", origin(other))
    members.run("@/served")
    assert is_in_place(members.home(0) / "served")
    received = members.home(1) / "served"
    assert not received.is_symlink()
    assert not notes_beside(received).exists()
    assert verify(received, deep=True).digest == manifest.digest
    assert (state(model), state(other)) == before


def test_the_command_takes_what_a_node_that_shares_the_folder_has_read(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADFIRST_RESULT_FILE", str(tmp_path / "result.json"))

    def run(link: Path, *more: str) -> dict[str, object]:
        main(["in-place", str(model), str(link), "--pinned", "p", *more])
        return dict(json.loads((tmp_path / "result.json").read_text()))

    first, second = tmp_path / "node1" / "served", tmp_path / "node2" / "served"
    results = [run(first), run(first)]
    results.append(run(second, "--seen-elsewhere", str(manifests.manifest_file(first))))
    assert [result["changed"] for result in results] == [True, False, True]
    assert len({result["digest"] for result in results}) == 1
    assert look(FetchRequest("path", str(model)), second, None)["pinned"] == "p"


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(HeadfirstError):
        use_in_place(tmp_path / "empty", tmp_path / "models" / "served", {})
