"""Fetching: what is kept, what is handed on in which order, what is refused; mostly from folders."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from fetching import SHARD_1, SHARD_2, write_source
from headfirst.common.errors import InputError, NotReadyError
from headfirst.node.weights.fetch.fetch_file import bring_file
from headfirst.node.weights.fetch.fetch_run import FetchRun, fetch
from headfirst.node.weights.fetch.fetching import Fetching, FetchRequest
from headfirst.node.weights.fetch.partial_file import PartialFile
from headfirst.node.weights.fetch.path_source import PathSource
from headfirst.node.weights.fetch.source import Listing, RemoteFile, SourceBusyError, client_failed
from headfirst.node.weights.files import list_files
from headfirst.node.weights.proof.checkpoint_check import CONFIG, INDEX
from headfirst.node.weights.proof.hashing import FileHash, hash_file
from headfirst.node.weights.proof.manifest import Manifest
from headfirst.node.weights.proof.proofs import Proofs


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_source(tmp_path / "source", megabytes=1)
    return tmp_path / "source"


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source lies on another disk."""
    monkeypatch.setattr("headfirst.node.weights.fetch.path_source._link", lambda *_: False)
    monkeypatch.setattr(PathSource, "links_into", lambda *_: False)


def bring(source: Path, target: Path, **options: Any) -> tuple[Manifest, bool]:
    fetching = Fetching(FetchRequest("path", str(source)), target)
    run = FetchRun(fetching, Proofs(target), **options)
    return Manifest(run.bring_all(), fetching.made_from), run.changed


@pytest.mark.parametrize("links", [True, False])
def test_a_link_that_takes_a_files_place_after_the_list_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """Whoever owns the folder of a model may wait for root to read it."""
    secret = tmp_path / "secret"
    name = SHARD_1 if links else "config.json"
    shutil.copy2(source / name, secret)  # of the same size and time
    listed = PathSource.list

    def swapped(self: PathSource) -> Listing:
        found = listed(self)
        (source / name).unlink()
        (source / name).symlink_to(secret)
        return found

    monkeypatch.setattr(PathSource, "list", swapped)
    with pytest.raises(NotReadyError, match="leads out of the model folder"):
        fetch(FetchRequest("path", str(source)), tmp_path / "got")
    assert not (tmp_path / "got" / name).exists()


def test_small_files_come_first(source: Path, tmp_path: Path) -> None:
    """In the order of their start: several threads may end in another one."""
    fetching = Fetching(FetchRequest("path", str(source)), tmp_path / "got")
    run = FetchRun(fetching, Proofs(tmp_path / "got"))
    run.bring_first()
    small = [name for name in list_files(source) if name not in (CONFIG, INDEX, SHARD_1, SHARD_2)]
    assert small and sorted(run.others()[: len(small)]) == sorted(small)
    assert run.others()[len(small) :] == [SHARD_1, SHARD_2]


class Arrivals(dict[str, FileHash]):
    """What arrived, in order."""

    def __call__(self, name: str, proof: FileHash) -> None:
        assert name not in self, "each file arrives once"
        self[name] = proof


def test_a_folder_is_linked_and_followed(source: Path, tmp_path: Path) -> None:
    request, target = FetchRequest("path", str(source)), tmp_path / "got"
    _, changed = fetch(request, target)
    assert changed
    assert (target / SHARD_1).samefile(source / SHARD_1), "no second copy on the same disk"
    assert not (target / "config.json").samefile(source / "config.json")
    assert fetch(request, target)[1] is False
    (source / "config.json").write_text((source / "config.json").read_text() + " ")
    (source / "inference" / "model.py").unlink()
    assert fetch(request, target)[1] is True
    assert list_files(target) == sorted([*list_files(source), "headfirst-manifest.json"])


def test_a_folder_can_be_used_in_place(source: Path) -> None:
    (source / "notes.bin").write_text("mine")
    manifest, changed = fetch(FetchRequest("path", str(source)), source)
    assert changed
    assert "notes.bin" not in manifest.files
    assert (source / "notes.bin").exists(), "nothing of the user's is removed"
    assert fetch(FetchRequest("path", str(source)), source)[1] is False


def test_every_file_arrives_once_with_its_proof_in_an_order_to_plan_by(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Arrivals()
    monkeypatch.setattr("headfirst.node.weights.fetch.fetch_run.MOST_AT_ONCE", 1)
    bring(source, tmp_path / "got", arrived=first)
    assert list(first)[:2] == ["config.json", "model.safetensors.index.json"]
    assert list(first)[-2:] == [SHARD_1, SHARD_2]
    assert first == {name: hash_file(source / name) for name in list_files(source)}
    again = Arrivals()
    bring(source, tmp_path / "got", arrived=again)
    assert again == first, "also what was there"


@pytest.mark.usefixtures("copies")
def test_a_second_run_reads_no_weights(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch(FetchRequest("path", str(source)), tmp_path / "got")
    monkeypatch.setattr("headfirst.node.weights.fetch.fetch_run.hash_file", None)
    monkeypatch.setattr(PathSource, "pull", None)
    assert fetch(FetchRequest("path", str(source)), tmp_path / "got")[1] is False


def test_what_was_given_up_is_not_brought_again(source: Path, tmp_path: Path) -> None:
    target, arrived, seen = tmp_path / "got", Arrivals(), []
    manifest, _ = bring(source, target)
    (target / SHARD_1).unlink()
    again, changed = bring(source, target, without={SHARD_1, SHARD_2}, arrived=arrived, seen=seen.append)
    assert (again, changed, sum(seen)) == (manifest, False, manifest.size)
    assert SHARD_1 not in arrived
    assert SHARD_2 in arrived, "what is there is handed on"
    assert not (target / SHARD_1).exists()
    (source / "config.json").write_text("{ }")
    bring(source, target, without={SHARD_1, SHARD_2})
    assert (target / SHARD_1).exists(), "of another state of the source nothing is known"


def test_a_touched_file_is_hashed_again_and_a_changed_one_brought_anew(source: Path, tmp_path: Path) -> None:
    request, target = FetchRequest("path", str(source)), tmp_path / "got"
    fetch(request, target)
    (target / "tokenizer.json").touch()
    assert fetch(request, target)[1] is False
    (target / "tokenizer.json").write_text('{"unicode": "X"}')
    assert fetch(request, target)[1] is True
    assert (target / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()


@pytest.mark.usefixtures("copies")
def test_a_copy_with_the_old_size_and_time_but_other_bytes_is_not_kept(source: Path, tmp_path: Path) -> None:
    request, copy = FetchRequest("path", str(source)), tmp_path / "got" / SHARD_2
    fetch(request, tmp_path / "got")
    stat = copy.stat()
    copy.write_bytes(bytes(stat.st_size))
    os.utime(copy, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (tmp_path / "got" / ".headfirst" / "hashes.json").unlink()
    assert fetch(request, tmp_path / "got")[1] is True
    assert copy.read_bytes() == (source / SHARD_2).read_bytes()


@pytest.mark.parametrize(
    ("spoil", "error", "says"),
    [
        (lambda folder: folder.rename(folder.with_name("gone")), InputError, "no such model folder"),
        (lambda folder: (folder / "config.json").unlink(), InputError, "has no config.json"),
        (
            lambda folder: [path.unlink() for path in folder.glob("*.safetensors")],
            InputError,
            "has no weights",
        ),
        (lambda folder: (folder / SHARD_2).unlink(), NotReadyError, f"not there: {SHARD_2}"),
        (lambda folder: os.truncate(folder / SHARD_2, 50), NotReadyError, f"{SHARD_2} is truncated"),
        (lambda folder: (folder / SHARD_2).write_bytes(b"x"), NotReadyError, "expected 8 bytes, found 1"),
        (
            lambda folder: (folder / SHARD_2).write_bytes(b"\1" + b"\0" * 8),
            NotReadyError,
            "not a safetensors",
        ),
    ],
)
def test_a_folder_that_is_no_checkpoint(spoil, error, says: str, source: Path, tmp_path: Path) -> None:
    spoil(source)
    with pytest.raises(error, match=says):
        fetch(FetchRequest("path", str(source)), tmp_path / "got")
    assert not (tmp_path / "got").exists()


def test_the_index_may_not_name_a_tensor_that_no_shard_holds(source: Path, tmp_path: Path) -> None:
    index = source / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    document["weight_map"]["model.ghost.weight"] = SHARD_1
    index.write_text(json.dumps(document))
    with pytest.raises(NotReadyError, match=r"no shard holds: model\.ghost\.weight"):
        fetch(FetchRequest("path", str(source)), tmp_path / "got")


@pytest.mark.usefixtures("copies")
@pytest.mark.parametrize("spare", [0, 1])
def test_no_space_is_said_before_anything_is_copied(
    spare: int, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum((source / name).stat().st_size for name in list_files(source))
    usage = type("Usage", (), {"free": size - 1 + spare})
    monkeypatch.setattr("headfirst.node.weights.files.shutil.disk_usage", lambda _path: usage)
    monkeypatch.setattr("headfirst.node.weights.files._HEADROOM", 0)
    if spare:
        fetch(FetchRequest("path", str(source)), tmp_path / "got")
        assert Fetching(FetchRequest("path", str(source)), tmp_path / "got").missing_bytes() == 0
    else:
        with pytest.raises(NotReadyError, match="no space to fetch the model"):
            fetch(FetchRequest("path", str(source)), tmp_path / "got")
        assert not (tmp_path / "got").exists()


@pytest.mark.usefixtures("copies")
def test_an_original_that_changes_while_it_is_read_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = PartialFile.write
    monkeypatch.setattr(
        PartialFile, "write", lambda self, data: os.utime(source / SHARD_2) or write(self, data)
    )
    with pytest.raises(NotReadyError, match="it was changed while it was read"):
        fetch(FetchRequest("path", str(source)), tmp_path / "got")


@pytest.mark.usefixtures("copies")
def test_it_can_be_stopped(source: Path, tmp_path: Path) -> None:
    stopped = Event()
    fetching = Fetching(FetchRequest("path", str(source)), tmp_path / "got", stopped)
    run = FetchRun(
        fetching,
        Proofs(tmp_path / "got"),
        arrived=lambda name, _proof: name == "model.safetensors.index.json" and stopped.set(),
    )
    with pytest.raises(NotReadyError, match="the fetch was stopped"):
        run.bring_all()
    assert not list((tmp_path / "got").glob("*.safetensors"))


@dataclass
class Stutter:
    """A source that is busy so many times; before that it brings a byte, or all, or begins again."""

    times: int
    brings: Callable[[PartialFile], object]
    retry_after: float = 0.0

    def pull(self, file: RemoteFile, listing: Listing, part: PartialFile) -> None:
        self.times -= 1
        if self.times < 0:
            part.write(b"x" * (file.size - part.size))
            return
        self.brings(part)
        raise SourceBusyError("busy", where="hub", hint="wait", retry_after=self.retry_after)


def nothing(part: PartialFile) -> None:
    pass


def a_byte(part: PartialFile) -> None:
    part.write(b"x")


def the_same_half(part: PartialFile) -> None:
    part.restart()
    part.write(b"x" * 50)


@pytest.mark.parametrize(
    ("source", "comes"),
    [
        (Stutter(30, a_byte), True),
        (Stutter(7, nothing), True),
        (Stutter(8, nothing), False),
        (Stutter(30, the_same_half), False),
        (Stutter(1, nothing, retry_after=601), False),
    ],
)
def test_a_busy_source_is_waited_for_while_bytes_come(source: Stutter, comes: bool, tmp_path: Path) -> None:
    def bring() -> FileHash:
        return bring_file(
            source, RemoteFile("file", 100, None), Listing("", []), tmp_path, lambda _: None, Event()
        )

    if comes:
        assert bring().size == 100
    else:
        with pytest.raises(SourceBusyError, match="busy"):
            bring()


@pytest.mark.parametrize(
    ("status", "busy"), [(429, True), (503, True), (408, True), (416, True), (404, False), (403, False)]
)
def test_what_a_hub_answers_is_tried_again_where_that_may_help(status: int, busy: bool) -> None:
    error = RuntimeError("no: https://hub/file?X-Amz-Signature=secret for you")
    error.response = SimpleNamespace(status_code=status, headers={"Retry-After": "7"})
    told = client_failed(error, "hub")
    assert isinstance(told, SourceBusyError) == busy
    assert not busy or told.retry_after == 7
    assert "no: https://hub/file for you" in str(told)


def test_a_shard_that_goes_while_it_is_looked_at_is_not_missed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: None
) -> None:
    """The node's own thread removes it once it is converted and everybody has it."""
    request, target = FetchRequest("path", str(source)), tmp_path / "target"
    fetch(request, target)
    get, fetching = Proofs.get, Fetching(request, target)

    def goes(self: Proofs, name: str) -> FileHash | None:
        if name == SHARD_1 and (target / name).exists():
            (target / name).unlink()
            raise FileNotFoundError(name)
        return get(self, name)

    monkeypatch.setattr(Proofs, "get", goes)
    known = fetching.fetched.records[SHARD_1]
    assert FetchRun(fetching, Proofs(target), without={SHARD_1}).bring(SHARD_1) == known
    assert not (target / SHARD_1).exists(), "it is not fetched again"


def test_a_lora_adapter_without_a_config_of_a_model_is_fetched(source: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    shutil.copy2(source / SHARD_2, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text('{"r": 8}')
    manifest, changed = fetch(FetchRequest("path", str(adapter)), tmp_path / "got")
    assert changed and set(manifest.files) == {"adapter_config.json", "adapter_model.safetensors"}
    (adapter / "adapter_config.json").unlink()
    with pytest.raises(InputError, match=r"has no config\.json"):
        fetch(FetchRequest("path", str(adapter)), tmp_path / "other")
