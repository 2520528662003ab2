"""A file list that leads out of the folder is refused whole, before anything is written or removed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import HUBS
from fake_hub import FakeHub, running
from fetching import run_fetch, write_source
from headfirst.common.errors import HeadfirstError, NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.node.weights.fetch.fetch_run import fetch
from headfirst.node.weights.fetch.fetching import FetchRequest
from headfirst.node.weights.fetch.hub_answers import ANSWER_LIMIT
from headfirst.node.weights.fetch.source import checked_listing, client_failed
from headfirst.node.weights.files import STATE_FOLDER, list_files
from headfirst.node.weights.progress import WeightsProgress
from headfirst.node.weights.proof import manifest as manifests
from headfirst.node.weights.proof.checkpoint_check import CONFIG, INDEX, read_index
from headfirst.node.weights.proof.manifest import MANIFEST, Manifest
from headfirst.node.weights.proof.proofs import Proofs
from headfirst.node.weights.proof.verify import changed_files, faults, verify

SHA = "0" * 64
HOSTILE: dict[str, list[tuple[object, object, object]]] = {
    "absolute": [("/etc/cron.d/x", 1, SHA)],
    "parent": [("../x", 1, SHA)],
    "parent inside": [("sub/../../x", 1, SHA)],
    "parent of an unwanted format": [("../../x.bin", 1, SHA)],
    "dot": [("./x", 1, SHA)],
    "double slash": [("sub//x", 1, SHA)],
    "ends in a slash": [("sub/", 1, SHA)],
    "backslash": [("sub\\x", 1, SHA)],
    "drive": [("C:x", 1, SHA)],
    "line feed": [("x\ny", 1, SHA)],
    "NUL": [("x\0y", 1, SHA)],
    "escape sequence": [("\x1b[2Jx", 1, SHA)],
    "bidirectional override": [("x\u202ey", 1, SHA)],
    "component of 300 bytes": [("x" * 300, 1, SHA)],
    "a name twice": [("x.json", 1, SHA), ("x.json", 1, SHA)],
    "case": [("x.json", 1, SHA), ("X.json", 1, SHA)],
    "Unicode normalisation": [("\u00e9.json", 1, SHA), ("e\u0301.json", 1, SHA)],
    "file and folder": [("x", 1, SHA), ("x/y", 1, SHA)],
    "file and folder by case": [("x", 1, SHA), ("X/y", 1, SHA)],
    "negative size": [("x.json", -1, SHA)],
    "size of 2**60": [("x.json", 2**60, SHA)],
    "sha256 that is short": [("x.json", 1, "abc")],
    "sha256 that is no hex": [("x.json", 1, "z" * 64)],
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    write_source(folder)
    return folder


@pytest.fixture
def hub(source: Path) -> Iterator[FakeHub]:
    with running({name: (source / name).read_bytes() for name in list_files(source)}) as hub:
        yield hub


@pytest.mark.parametrize("case", HOSTILE)
def test_one_bad_entry_refuses_the_whole_list(case: str) -> None:
    good = [(CONFIG, 1, None), ("sub/model.py", 1, None)]
    assert checked_listing("", good, "hub").files
    with pytest.raises(UntrustedError):
        checked_listing("", [*good, *HOSTILE[case]], "hub")


@pytest.mark.parametrize(
    "entry",
    [(1, 1, None), (None, 1, None), ("x", None, None), ("x", True, None), ("x", 1.0, None), ("x", 1, 1)],
)
def test_an_entry_of_other_types_is_refused(entry: tuple[object, object, object]) -> None:
    with pytest.raises(UntrustedError):
        checked_listing("", [entry], "hub")


@pytest.mark.parametrize("name", HUBS)
def test_a_hub_with_a_hostile_list_changes_nothing(name: str, hub: FakeHub, tmp_path: Path) -> None:
    target, victim = tmp_path / "got", tmp_path / "victim.json"
    (target / STATE_FOLDER).mkdir(parents=True)
    (target / "old.json").write_text("kept")
    victim.write_text("kept")
    for hostile in (str(victim), "../victim.json"):
        hub.listed = [{"name": hostile, "size": 1, "sha256": SHA}]
        done, _ = run_fetch(hub, target, source=name)
        assert done.returncode == 1, done.stderr
        assert "does not stay inside its folder" in done.stderr
        assert "Traceback" not in done.stderr
        assert victim.read_text() == "kept"
        assert list_files(target) == ["old.json"]
        assert not hub.order, "nothing was fetched"


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", HUBS)
def test_the_answers_of_a_hub_are_bounded(name: str, compressed: bool, hub: FakeHub, tmp_path: Path) -> None:
    hub.gzip = compressed
    done, _ = run_fetch(hub, tmp_path / "first", source=name)
    assert done.returncode == 0, done.stderr
    hub.listing_extra = {"ballast": "x" * (ANSWER_LIMIT + 1)}
    done, _ = run_fetch(hub, tmp_path / "got", source=name)
    assert done.returncode == 1
    assert f"larger than {ANSWER_LIMIT} bytes" in done.stderr
    deep: list[object] = []
    for _ in range(200):
        deep = [deep]
    hub.listing_extra = {"deep": deep}
    done, _ = run_fetch(hub, tmp_path / "got", source=name)
    assert done.returncode == 1
    assert "nested more than" in done.stderr


@pytest.mark.parametrize("name", HUBS)
def test_a_manifest_on_the_hub_is_no_file_of_the_checkpoint(name: str, hub: FakeHub, tmp_path: Path) -> None:
    hub.files[MANIFEST] = b"{}"
    done, _ = run_fetch(hub, tmp_path / "got", source=name)
    assert done.returncode == 0, done.stderr
    verify(tmp_path / "got", deep=True)


@pytest.mark.parametrize("asked", ["nan", "inf", "-5", "soon", "1e999"])
def test_a_wait_that_is_no_number_of_seconds_is_not_waited(asked: str) -> None:
    class Busy(Exception):
        retry_after = asked

    assert client_failed(Busy("slow down"), "hub").retry_after is None  # type: ignore[attr-defined]


def test_a_clients_message_is_one_short_line_without_escape_sequences() -> None:
    error = client_failed(ValueError("\x1b]0;x\x07" + "x" * 10_000), "hub")
    assert len(error.what) < 1000
    assert "\x1b" not in str(error)


# What a checkpoint's own files name.


OTHER_FILES = ("../../x.safetensors", "/x.safetensors", "a\\b", ".ssh/x", "", 1, None, ["a.safetensors"])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        *((json.dumps({"weight_map": {"a": shard}}), HeadfirstError) for shard in OTHER_FILES),
        *(
            (text, NotReadyError)
            for text in ('{"weight_map": ' + "[" * 100_000, '{"a": 1, "a": 2}', "[]", "{")
        ),
    ],
)
def test_an_index_of_other_files_or_of_no_json_object_is_refused(
    text: str, error: type[HeadfirstError], tmp_path: Path
) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(error):
        read_index(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        '{"origin": {}, "files": {"../x": {"size": 1, "xxh3": "%s", "sha256": null}}}' % ("0" * 32),
        '{"origin": {}, "files": {"x": {"size": -1, "xxh3": "%s", "sha256": null}}}' % ("0" * 32),
        '{"origin": {}, "files": {"x": {"size": "1", "xxh3": "%s", "sha256": null}}}' % ("0" * 32),
        '{"origin": {}, "files": {"x": {"size": 1, "xxh3": "0", "sha256": null}}}',
        '{"origin": {}, "files": {"x": {"size": 1, "xxh3": "%s", "sha256": 1}}}' % ("0" * 32),
        '{"origin": {"model": 1}, "files": {}}',
        '{"origin": [], "files": {}}',
        '{"files": {}}',
        "[" * 100_000,
    ],
)
def test_a_manifest_that_is_none_is_refused_with_what_to_do(text: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(NotReadyError, match="not a manifest") as caught:
        manifests.load(tmp_path)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["[]", "1", "[" * 100_000, '{"config.json": 7}', '{"config.json": []}'])
def test_caches_that_are_malformed_count_as_empty(text: str, source: Path, tmp_path: Path) -> None:
    manifest, _ = fetch(FetchRequest("path", str(source)), tmp_path / "got")
    state = tmp_path / "got" / STATE_FOLDER
    (state / "hashes.json").write_text(text)
    for pieces in (state / "pieces").rglob("*.json"):
        pieces.write_text(text)
    assert changed_files(tmp_path / "got", manifest)
    assert Proofs(tmp_path / "got").remembered(CONFIG) is None
    assert fetch(FetchRequest("path", str(source)), tmp_path / "got")[0] == manifest


# Symbolic links.


def test_links_in_the_target_are_refused_before_anything_is_removed(source: Path, tmp_path: Path) -> None:
    target, outside = tmp_path / "got", tmp_path / "outside"
    outside.mkdir()
    (outside / "model.py").write_text("kept")
    fetch(FetchRequest("path", str(source)), target)
    for link in (target / "inference", target / STATE_FOLDER / "parts", target / "old.json"):
        moved = tmp_path / "moved"
        if link.exists():
            link.rename(moved)
        link.symlink_to(outside)
        before = list_files(target)
        with pytest.raises(NotReadyError, match="holds a symbolic link") as caught:
            fetch(FetchRequest("path", str(source)), target)
        assert caught.value.where == str(link)
        assert (outside / "model.py").read_text() == "kept"
        assert list_files(outside) == ["model.py"]
        assert list_files(target) == before
        link.unlink()
        if moved.exists():
            moved.rename(link)


@pytest.mark.parametrize("name", ["tokenizer.json", "model-00001-of-000002.safetensors", CONFIG])
def test_a_link_that_leads_out_of_the_source_is_refused(name: str, source: Path, tmp_path: Path) -> None:
    folder, secret = tmp_path / "model", tmp_path / "secret"
    write_source(folder)
    (folder / name).replace(secret)
    (folder / name).symlink_to(secret)
    with pytest.raises(NotReadyError, match="leads out of the model folder"):
        fetch(FetchRequest("path", str(folder)), tmp_path / "got")
    assert not (tmp_path / "got").exists()


def test_links_inside_the_source_and_into_a_hubs_cache_are_followed(tmp_path: Path) -> None:
    cache = tmp_path / "models--team--model"
    snapshot = cache / "snapshots" / "c0ffee"
    write_source(snapshot)
    (cache / "blobs").mkdir()
    for number, name in enumerate(list_files(snapshot)):
        (snapshot / name).replace(cache / "blobs" / str(number))
        blob = os.path.relpath(cache / "blobs" / str(number), (snapshot / name).parent)
        (snapshot / name).symlink_to(blob)
    (snapshot / "more.json").symlink_to(CONFIG)
    fetch(FetchRequest("path", str(snapshot)), tmp_path / "got")
    assert not any((tmp_path / "got" / name).is_symlink() for name in list_files(tmp_path / "got"))
    assert (tmp_path / "got" / "more.json").read_bytes() == (snapshot / CONFIG).read_bytes()
    verify(tmp_path / "got", deep=True)


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    write_source(tmp_path / "model")
    os.mkfifo(tmp_path / "model" / "pipe.json")
    with pytest.raises(NotReadyError, match="not a regular file"):
        fetch(FetchRequest("path", str(tmp_path / "model")), tmp_path / "got")


def test_verify_names_a_file_that_became_a_link(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "got"
    manifest, _ = fetch(FetchRequest("path", str(source)), target)
    (target / CONFIG).replace(tmp_path / "elsewhere")
    (target / CONFIG).symlink_to(tmp_path / "elsewhere")
    assert changed_files(target, manifest) == [CONFIG]
    for deep in (False, True):
        assert faults(target, manifest, WeightsProgress(""), deep=deep) == {
            CONFIG: "a symbolic link that leads out of the folder"
        }


def test_a_written_file_replaces_a_link_and_does_not_follow_it(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / MANIFEST).symlink_to(victim)
    (tmp_path / f".{MANIFEST}.part").symlink_to(victim)
    manifests.save(tmp_path, Manifest({}))
    assert victim.read_text() == "kept"
    assert not (tmp_path / MANIFEST).is_symlink()
