"""Fetching, through the real hub clients from a local hub, and from a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import COMMIT, GATED, MODEL, FakeHub, running
from headfirst.errors import InputError, NotReadyError
from headfirst.weights.fetch import Request, fetch, is_current
from headfirst.weights.files import list_files
from test_weights_convert import SHARD_1, SHARD_2, two_shards
from weights_checkpoints import write_checkpoint

HUBS = ("huggingface", "modelscope")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "source", two_shards())
    return tmp_path / "source"


@pytest.fixture
def hub(source: Path) -> Iterator[FakeHub]:
    files = {name: (source / name).read_bytes() for name in list_files(source)}
    with running(files | {"pytorch_model.bin": b"the same again", ".gitattributes": b"*.safetensors"}) as hub:
        yield hub


def run_fetch(hub: FakeHub, target: Path, *arguments: str, source: str, **environment: str):
    """Run `headfirst-weights fetch` in a process of its own: the clients read their settings on import."""
    home = target.parent / "home"
    result = target.parent / "result.json"
    result.unlink(missing_ok=True)
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from headfirst.weights.cli import main; main()"),
            *("fetch", *(arguments or (MODEL,)), str(target), "--from", source),
        ],
        env={
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HF_ENDPOINT": hub.url,
            "MODELSCOPE_ENDPOINT": hub.url,
            "HF_HOME": str(home),
            "MODELSCOPE_HOME": str(home),
            "HOME": str(home),
            "HEADFIRST_RESULT_FILE": str(result),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done, json.loads(result.read_text()) if result.exists() else {}


@pytest.mark.parametrize("source_name", HUBS)
def test_a_model_is_fetched_whole_and_proven(
    source_name: str, hub: FakeHub, source: Path, tmp_path: Path
) -> None:
    done, result = run_fetch(hub, tmp_path / "got", source=source_name)
    assert done.returncode == 0, done.stderr
    assert result["changed"]
    # Only the checkpoint: no other format of the weights, no dot file.
    assert [name for name in list_files(tmp_path / "got") if name != "headfirst-manifest.json"] == list_files(
        source
    )
    for name in list_files(source):
        assert (tmp_path / "got" / name).read_bytes() == (source / name).read_bytes()
    origin = json.loads((tmp_path / "got" / "headfirst-manifest.json").read_text())["origin"]
    pinned = {"huggingface": COMMIT, "modelscope": ""}[source_name]
    assert origin == {"source": source_name, "model": MODEL, "revision": "", "pinned": pinned}
    assert is_current(Request(source_name, MODEL), tmp_path / "got")
    assert not is_current(Request(source_name, MODEL, "v2"), tmp_path / "got")

    before = dict(hub.sent)
    done, result = run_fetch(hub, tmp_path / "got", source=source_name)
    assert (done.returncode, result["changed"]) == (0, False)
    assert hub.sent == before, "a second fetch downloads nothing"


@pytest.mark.parametrize("source_name", HUBS)
def test_a_cut_connection_is_resumed(source_name: str, hub: FakeHub, source: Path, tmp_path: Path) -> None:
    hub.files["big.safetensors"] = big = os.urandom(25_000_000)  # the client keeps parts of 10 MB
    hub.cut.add("big.safetensors")
    done, _ = run_fetch(hub, tmp_path / "got", source=source_name)
    if done.returncode != 0:  # a client may leave the second try to the next call
        done, _ = run_fetch(hub, tmp_path / "got", source=source_name)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "got" / "big.safetensors").read_bytes() == big
    assert hub.sent["big.safetensors"] < 1.2 * len(big), "the first half is not sent again"


@pytest.mark.parametrize("source_name", HUBS)
def test_bytes_that_stay_wrong_are_refused_with_the_file(
    source_name: str, hub: FakeHub, tmp_path: Path
) -> None:
    hub.wrong.add(SHARD_1)
    done, result = run_fetch(hub, tmp_path / "got", source=source_name)
    assert done.returncode == 3, done.stderr
    assert SHARD_1 in result["msg"] or "hub cannot be used" in result["msg"]
    assert not (tmp_path / "got" / "headfirst-manifest.json").exists()


@pytest.mark.parametrize(
    ("source_name", "arguments", "says"),
    [
        ("huggingface", ("team/nothing",), "there is no such model, or it is private"),
        ("huggingface", (GATED,), "this model is gated"),
        ("huggingface", (MODEL, "--revision=v9"), "it has no revision v9"),
        ("modelscope", ("team/nothing",), "there is no such model, or it has no revision master"),
        ("modelscope", (GATED,), "this model is gated or private"),
        ("modelscope", (MODEL, "--revision=v9"), "it has no revision v9"),
    ],
)
def test_what_the_hub_refuses_is_wrong_input(
    source_name: str, arguments: tuple[str, ...], says: str, hub: FakeHub, tmp_path: Path
) -> None:
    model, *options = arguments
    done, result = run_fetch(hub, tmp_path / "got", *options, model, source=source_name)
    assert done.returncode == 2, done.stderr
    assert says in result["msg"]
    assert not (tmp_path / "got").exists()


def test_a_hub_that_does_not_answer_is_not_ready(hub: FakeHub, tmp_path: Path) -> None:
    done, result = run_fetch(hub, tmp_path / "got", source="huggingface", HF_ENDPOINT="http://127.0.0.1:1")
    assert done.returncode == 3, done.stderr
    assert "the hub cannot be used now" in result["msg"]


@pytest.mark.parametrize("source_name", HUBS)
def test_the_token_comes_from_a_private_file(source_name: str, hub: FakeHub, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("hf_secret\n")
    token.chmod(0o644)
    done, result = run_fetch(hub, tmp_path / "got", MODEL, f"--token-file={token}", source=source_name)
    assert done.returncode == 2
    assert "others can read this file" in result["msg"]
    token.chmod(0o600)
    done, _ = run_fetch(hub, tmp_path / "got", MODEL, f"--token-file={token}", source=source_name)
    assert done.returncode == 0, done.stderr
    assert any("hf_secret" in header for header in hub.tokens)
    assert "hf_secret" not in done.stdout + done.stderr


def test_a_folder_is_linked_and_followed(source: Path, tmp_path: Path) -> None:
    request, target = Request("path", str(source)), tmp_path / "got"
    _, changed = fetch(request, target)
    assert changed
    assert (target / SHARD_1).samefile(source / SHARD_1), "no second copy on the same disk"
    assert not (target / "config.json").samefile(source / "config.json")
    assert fetch(request, target)[1] is False
    assert is_current(request, target)
    (source / "config.json").write_text((source / "config.json").read_text() + " ")
    (source / "inference" / "model.py").unlink()
    assert not is_current(request, target)
    assert fetch(request, target)[1] is True
    assert list_files(target) == sorted([*list_files(source), "headfirst-manifest.json"])


def test_a_folder_can_be_used_in_place(source: Path) -> None:
    (source / "notes.bin").write_text("mine")
    manifest, changed = fetch(Request("path", str(source)), source)
    assert changed
    assert "notes.bin" not in manifest.files
    assert (source / "notes.bin").exists(), "nothing of the user's is removed"
    assert is_current(Request("path", str(source)), source)


def test_a_touched_file_is_hashed_again_and_a_changed_one_brought_anew(source: Path, tmp_path: Path) -> None:
    request, target = Request("path", str(source)), tmp_path / "got"
    fetch(request, target)
    (target / "tokenizer.json").touch()
    assert not is_current(request, target)
    assert fetch(request, target)[1] is False
    assert is_current(request, target)
    (target / "tokenizer.json").write_text('{"unicode": "X"}')
    assert fetch(request, target)[1] is True
    assert (target / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()


def test_a_copy_with_the_old_size_and_time_but_other_bytes_is_not_kept(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headfirst.weights.path_source._link", lambda *_: False)
    request, copy = Request("path", str(source)), tmp_path / "got" / SHARD_2
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
        fetch(Request("path", str(source)), tmp_path / "got")
    assert not (tmp_path / "got").exists()


def test_the_index_may_not_name_a_tensor_that_no_shard_holds(source: Path, tmp_path: Path) -> None:
    index = source / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    document["weight_map"]["model.ghost.weight"] = SHARD_1
    index.write_text(json.dumps(document))
    with pytest.raises(NotReadyError, match=r"no shard holds: model\.ghost\.weight"):
        fetch(Request("path", str(source)), tmp_path / "got")


@pytest.mark.parametrize("will_convert", [False, True])
def test_no_space_is_said_before_anything_is_copied(
    will_convert: bool, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headfirst.weights.path_source.PathSource.links_into", lambda *_: False)
    usage = type("Usage", (), {"free": 70_000_000})  # enough for the source with the headroom of 64 MiB
    monkeypatch.setattr("headfirst.weights.files.shutil.disk_usage", lambda _path: usage)
    size = sum((source / name).stat().st_size for name in list_files(source))
    monkeypatch.setattr("headfirst.weights.files._HEADROOM", 70_000_000 - 2 * size)
    if will_convert:
        with pytest.raises(NotReadyError, match="no space to fetch the model and convert it to BF16"):
            fetch(Request("path", str(source)), tmp_path / "got", will_convert=True)
        assert not list((tmp_path / "got").glob("*.safetensors"))
    else:
        fetch(Request("path", str(source)), tmp_path / "got")
