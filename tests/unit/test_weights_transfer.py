"""One node serves, another receives: resumed, proven, and only for those who may."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from headfirst.errors import InputError, NotReadyError
from headfirst.weights.fetch import Request, fetch
from headfirst.weights.files import list_files
from headfirst.weights.hash_cache import FileRecord
from headfirst.weights.manifest import Manifest, parse
from headfirst.weights.progress import Progress
from headfirst.weights.receive import receive
from headfirst.weights.serve import CheckpointServer
from headfirst.weights.verify import verify
from test_weights_convert import SHARD_1, SHARD_2, two_shards
from weights_checkpoints import write_checkpoint

TOKEN = "t0ken"


@pytest.fixture
def served(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "source", two_shards())
    fetch(Request("path", str(tmp_path / "source")), tmp_path / "head")
    return tmp_path / "head"


@contextmanager
def serving(folder: Path, peers: tuple[str, ...] = ("127.0.0.1",)) -> Iterator[tuple[str, CheckpointServer]]:
    server = CheckpointServer(folder, ("127.0.0.1", 0), peers, TOKEN, Progress("serve"))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", server
    finally:
        server.shutdown()
        server.server_close()


def test_a_checkpoint_arrives_whole(served: Path, tmp_path: Path) -> None:
    with serving(served) as (url, server):
        manifest, changed = receive(url, tmp_path / "worker", TOKEN, server.manifest.digest)
        assert changed
        assert manifest == server.manifest
        for name in list_files(served):
            assert (tmp_path / "worker" / name).read_bytes() == (served / name).read_bytes()
        assert receive(url, tmp_path / "worker", TOKEN, server.manifest.digest)[1] is False
    assert verify(tmp_path / "worker", deep=True) == manifest


def test_a_flipped_byte_with_the_old_time_is_found_by_verify_and_only_that_file_sent(
    served: Path, tmp_path: Path
) -> None:
    with serving(served) as (url, server):
        receive(url, tmp_path / "worker", TOKEN, server.manifest.digest)
        shard = tmp_path / "worker" / SHARD_1
        stat = shard.stat()
        with shard.open("r+b") as file:
            file.seek(stat.st_size - 1)
            last = file.read(1)
            file.seek(stat.st_size - 1)
            file.write(bytes([last[0] ^ 1]))
        os.utime(shard, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        with pytest.raises(NotReadyError, match=f"{SHARD_1}: its hash is not the manifest's"):
            verify(tmp_path / "worker", deep=True)
        sent = server.progress.done
        assert receive(url, tmp_path / "worker", TOKEN, server.manifest.digest)[1] is True
        assert server.progress.done - sent == stat.st_size
    verify(tmp_path / "worker", deep=True)


def test_a_part_is_continued_and_not_sent_again(served: Path, tmp_path: Path) -> None:
    whole = (served / SHARD_1).read_bytes()
    part = tmp_path / "worker" / ".headfirst" / "parts" / f"{SHARD_1}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(whole[:150_000])
    with serving(served) as (url, server):
        receive(url, tmp_path / "worker", TOKEN, server.manifest.digest)
        assert server.progress.done == server.manifest.size - 150_000
    assert (tmp_path / "worker" / SHARD_1).read_bytes() == whole


@pytest.mark.parametrize("size", [150_000, 206_198, 400_000])
def test_a_part_with_wrong_bytes_is_thrown_away(size: int, served: Path, tmp_path: Path) -> None:
    part = tmp_path / "worker" / ".headfirst" / "parts" / f"{SHARD_1}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"\xff" * size)
    with serving(served) as (url, server):
        receive(url, tmp_path / "worker", TOKEN, server.manifest.digest)
    verify(tmp_path / "worker", deep=True)


def test_a_head_that_comes_late_is_waited_for(served: Path, tmp_path: Path) -> None:
    with serving(served) as (url, server):
        digest = server.manifest.digest
    port = int(url.rsplit(":", 1)[1])

    def serve_late() -> None:
        time.sleep(0.7)
        late = CheckpointServer(served, ("127.0.0.1", port), ["127.0.0.1"], TOKEN, Progress("serve"))
        with late:
            late.serve_until_idle(2)

    thread = threading.Thread(target=serve_late)
    thread.start()
    assert receive(url, tmp_path / "worker", TOKEN, digest)[1] is True
    thread.join()


def test_a_head_that_stays_silent_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(NotReadyError, match="does not answer"):
        receive("http://127.0.0.1:1", tmp_path / "worker", TOKEN, "0", patience_s=0.1)
    assert not (tmp_path / "worker").exists()


def test_a_file_that_rots_on_the_head_is_not_accepted(served: Path, tmp_path: Path) -> None:
    with serving(served) as (url, server):
        data = bytearray((served / SHARD_2).read_bytes())
        data[-1] ^= 1
        (served / SHARD_2).write_bytes(data)
        with pytest.raises(NotReadyError, match=f"{SHARD_2} arrives with other bytes"):
            receive(url, tmp_path / "worker", TOKEN, server.manifest.digest)
    assert not (tmp_path / "worker" / "headfirst-manifest.json").exists()
    assert not (tmp_path / "worker" / SHARD_2).exists()


def test_another_checkpoint_than_the_one_asked_for_is_refused(served: Path, tmp_path: Path) -> None:
    with serving(served) as (url, _), pytest.raises(NotReadyError, match="another checkpoint is served"):
        receive(url, tmp_path / "worker", TOKEN, "0" * 64)


@pytest.mark.parametrize(
    ("peers", "token", "path", "status"),
    [
        (("127.0.0.1",), TOKEN, "/manifest", 200),
        (("127.0.0.2",), TOKEN, "/manifest", 403),
        (("127.0.0.1",), "guess", "/manifest", 401),
        (("127.0.0.1",), TOKEN, "/", 404),
        (("127.0.0.1",), TOKEN, "/files/config.json", 200),
        (("127.0.0.1",), TOKEN, "/files/.headfirst/hashes.json", 404),
        (("127.0.0.1",), TOKEN, "/files/..%2f..%2fetc/passwd", 404),
        (("127.0.0.1",), TOKEN, "/files/headfirst-manifest.json", 404),
    ],
)
def test_who_may_have_what(peers: tuple[str, ...], token: str, path: str, status: int, served: Path) -> None:
    with serving(served, peers) as (url, _):
        assert httpx.get(url + path, headers={"Authorization": f"Bearer {token}"}).status_code == status


@pytest.mark.parametrize(("token", "says"), [("guess", "it refuses the token")])
def test_a_refusal_is_said_at_once(token: str, says: str, served: Path, tmp_path: Path) -> None:
    with serving(served) as (url, server), pytest.raises(NotReadyError, match=says):
        receive(url, tmp_path / "worker", token, server.manifest.digest)


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/../../b", ".ssh/authorized_keys"])
def test_a_manifest_cannot_name_a_file_outside_its_folder(name: str) -> None:
    with pytest.raises(NotReadyError, match="outside its folder"):
        parse(Manifest({name: FileRecord(1, "0")}).dumps(), "http://head")


def test_a_server_that_nobody_asks_ends(served: Path) -> None:
    with CheckpointServer(served, ("127.0.0.1", 0), ["127.0.0.1"], TOKEN, Progress("serve")) as server:
        began = time.monotonic()
        server.serve_until_idle(0.3)
    assert 0.3 <= time.monotonic() - began < 3


def test_only_a_complete_folder_is_served_and_only_on_a_free_port(served: Path) -> None:
    with serving(served) as (url, _), pytest.raises(NotReadyError, match="cannot listen"):
        port = int(url.rsplit(":", 1)[1])
        CheckpointServer(served, ("127.0.0.1", port), ["127.0.0.1"], TOKEN, Progress("serve"))
    (served / "headfirst-manifest.json").unlink()
    with pytest.raises(NotReadyError, match="no complete checkpoint"):
        CheckpointServer(served, ("127.0.0.1", 0), ["127.0.0.1"], TOKEN, Progress("serve"))


def test_somebody_elses_folder_is_not_received_into(served: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("precious")
    with serving(served) as (url, server), pytest.raises(InputError, match="not made by headfirst"):
        receive(url, tmp_path / "home", TOKEN, server.manifest.digest)
    assert (tmp_path / "home" / "thesis.txt").exists()
