"""What a hub sent for a plan is read from the cache by the next one, and a silent hub is given up soon."""

from __future__ import annotations

import json
import socket
import stat
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_hub
import pytest
from headfirst.common.errors import NotReadyError
from headfirst.control.checkpoints import cache, hub_requests, silence, small_files
from headfirst.control.checkpoints.describe import describe
from headfirst.decide.model.checkpoint import Checkpoint
from model_files import CONFIG, INDEX, SHARDS

FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "model.safetensors.index.json": json.dumps(INDEX).encode(),
    **SHARDS,
}
VARIABLES = {"huggingface": "HF_ENDPOINT", "modelscope": "MODELSCOPE_ENDPOINT"}


@pytest.fixture(autouse=True)
def _empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(hub_requests, "_SILENT", set())


@pytest.fixture
def hub() -> Iterator[fake_hub.FakeHub]:
    with fake_hub.running(dict(FILES)) as server:
        yield server


def described(
    hub: fake_hub.FakeHub, source: str = "huggingface", *, revision: str | None = None
) -> Checkpoint:
    return describe(fake_hub.MODEL, source, revision=revision, environment={VARIABLES[source]: hub.url})


def requests(hub: fake_hub.FakeHub, first: Checkpoint, source: str = "huggingface", **more: Any) -> int:
    """How many a repeat sends, which describes the same."""
    hub.requests.clear()
    assert described(hub, source, **more) == first
    return len(hub.requests)


def stored(tmp_path: Path) -> Path:
    (file,) = (tmp_path / "cache").rglob("*.zip")
    return file


@pytest.mark.parametrize("source", VARIABLES)
def test_a_repeat_sends_one_request(hub: fake_hub.FakeHub, source: str) -> None:
    first = described(hub, source)
    assert len(hub.requests) > 4
    assert requests(hub, first, source) == 1
    assert first.source == "hub"


def test_a_repeat_at_a_full_commit_sends_none(hub: fake_hub.FakeHub) -> None:
    first = described(hub, revision=fake_hub.COMMIT)
    assert requests(hub, first, revision=fake_hub.COMMIT) == 0


def test_a_branch_and_its_commit_share_what_is_stored(hub: fake_hub.FakeHub) -> None:
    described(hub)
    hub.requests.clear()
    described(hub, revision=fake_hub.COMMIT)
    assert not hub.requests


@pytest.mark.parametrize("source", VARIABLES)
def test_what_the_branch_holds_now_is_described(hub: fake_hub.FakeHub, source: str) -> None:
    described(hub, source)
    hub.commit = "beef" * 10
    hub.files["config.json"] = json.dumps(CONFIG | {"max_position_embeddings": 4242}).encode()
    assert described(hub, source).max_context == 4242


def test_small_files_are_sent_once_for_a_commit(hub: fake_hub.FakeHub) -> None:
    hub.files["tokenizer.json"] = b"{}"
    environment = {VARIABLES["huggingface"]: hub.url}
    first = small_files.of_hub("huggingface", fake_hub.MODEL, None, environment=environment)
    assert first["tokenizer.json"] == b"{}"
    hub.requests.clear()
    assert small_files.of_hub("huggingface", fake_hub.MODEL, None, environment=environment) == first
    assert len(hub.requests) == 1
    hub.commit, hub.files["tokenizer.json"] = "beef" * 10, b"[]"
    changed = small_files.of_hub("huggingface", fake_hub.MODEL, None, environment=environment)
    assert changed["tokenizer.json"] == b"[]"


def test_another_mirror_shares_nothing(hub: fake_hub.FakeHub) -> None:
    described(hub)
    changed = {**FILES, "config.json": json.dumps(CONFIG | {"max_position_embeddings": 4242}).encode()}
    with fake_hub.running(changed) as mirror:
        assert described(mirror, revision=fake_hub.COMMIT).max_context == 4242


def test_files_are_the_users_alone(hub: fake_hub.FakeHub, tmp_path: Path) -> None:
    described(hub)
    file = stored(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert not [path for path in file.parent.iterdir() if path.name.startswith(".")]


def rewritten(file: Path, name: str, data: bytes) -> None:
    """The stored answers with another one of this name."""
    with zipfile.ZipFile(file) as archive:
        entries = {entry: archive.read(entry) for entry in archive.namelist()}
    assert name in entries
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, content in {**entries, name: data}.items():
            archive.writestr(entry, content)


SHARD = next(iter(SHARDS))
DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut off": lambda file: file.write_bytes(file.read_bytes()[:-40]),
    "empty": lambda file: file.write_bytes(b""),
    "zeros": lambda file: file.write_bytes(bytes(4096)),
    "another listing": lambda file: rewritten(file, "listing", b'{"siblings": [{"rfilename": "../x"}]}'),
    "another config": lambda file: rewritten(file, "file/config.json", b'{"architectures": 5}'),
    "no JSON": lambda file: rewritten(file, "file/config.json", b"\xff"),
    "a damaged header": lambda file: rewritten(file, f"header/{SHARD}", b'{"a": 1}'),
    "a bomb": lambda file: rewritten(file, "file/config.json", bytes(200 << 20)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_read_from_the_hub_again(
    hub: fake_hub.FakeHub, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    first = described(hub, revision=fake_hub.COMMIT)
    damage(stored(tmp_path))
    assert described(hub, revision=fake_hub.COMMIT) == first
    assert requests(hub, first, revision=fake_hub.COMMIT) == 0


def test_the_oldest_are_removed(
    hub: fake_hub.FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described(hub)
    size = stored(tmp_path).stat().st_size
    monkeypatch.setattr(cache, "MOST_BYTES", 3 * size)
    for number in range(4):
        hub.commit = f"{number:040x}"
        described(hub)
    files = list((tmp_path / "cache").rglob("*.zip"))
    assert 2 <= len(files) <= 3
    hub.requests.clear()
    described(hub, revision=hub.commit)
    assert not hub.requests


def test_a_folder_that_cannot_be_written_costs_time_only(hub: fake_hub.FakeHub, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert described(hub).source == "hub"


def test_offline_reads_what_was_stored(hub: fake_hub.FakeHub) -> None:
    first = described(hub)
    hub.requests.clear()
    environment = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "1"}
    again = describe(fake_hub.MODEL, "huggingface", environment=environment)
    assert again == first.model_copy(update={"note": again.note})
    assert fake_hub.COMMIT[:12] in str(again.note) and "HF_HUB_OFFLINE" in str(again.note)
    assert not hub.requests


def test_a_hub_that_is_gone_reads_what_was_stored() -> None:
    with fake_hub.running(dict(FILES)) as server:
        first = described(server)
    again = described(server)
    assert again == first.model_copy(update={"note": again.note})
    assert "cannot be reached" in str(again.note)


@pytest.fixture
def silent() -> Iterator[str]:
    """A hub that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_silent_hub_is_given_up_and_the_switch_is_named(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "LIMIT_S", 0.3)
    begin = time.monotonic()
    model = describe("Qwen/QwQ-32B", "huggingface", environment={"HF_ENDPOINT": silent})
    assert time.monotonic() - begin < 3
    assert model.source == "catalogue"
    assert "sent nothing for" in str(model.note) and "HF_HUB_OFFLINE=1" in str(model.note)
    with pytest.raises(NotReadyError) as raised:
        describe("team/other", "modelscope", environment={"MODELSCOPE_ENDPOINT": silent})
    # Without requests nothing would describe it either.
    assert "MODELSCOPE_ENDPOINT" in str(raised.value) and "model_source=path" in str(raised.value)
    assert "HF_HUB_OFFLINE" not in str(raised.value)


def test_a_name_server_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(silence, "LIMIT_S", 0.3)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait(20) and [])
    before = set(threading.enumerate())
    begin = time.monotonic()
    model = describe("Qwen/QwQ-32B", "huggingface", environment={"HF_ENDPOINT": "http://hub.test"})
    assert time.monotonic() - begin < 3
    assert model.source == "catalogue"
    # The process would wait for others at its end.
    assert all(thread.daemon for thread in set(threading.enumerate()) - before)
    release.set()


def test_a_hub_that_is_slow_but_sends_is_waited_for(
    hub: fake_hub.FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "LIMIT_S", 0.6)
    hub.delay = 0.3
    assert described(hub).source == "hub"
    assert len(hub.requests) * hub.delay > 1


def test_the_hub_may_be_silent_for_five_seconds() -> None:
    assert silence.LIMIT_S == 5


def test_a_silent_hub_is_waited_for_once(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "LIMIT_S", 0.5)
    describe("Qwen/QwQ-32B", "huggingface", environment={"HF_ENDPOINT": silent})
    begin = time.monotonic()
    again = describe("Qwen/Qwen3-32B", "huggingface", environment={"HF_ENDPOINT": silent})
    assert time.monotonic() - begin < 0.4
    assert "sent nothing for" in str(again.note)
