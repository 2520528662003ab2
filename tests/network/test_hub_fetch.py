"""Fetching through the real hub clients from a local hub, which fails in every way that hubs do."""

from __future__ import annotations

import hashlib
import json
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import fetching
import pytest
from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import HUBS
from fake_hub import COMMIT, GATED, MODEL, SIGNATURE, FakeHub, FakeXet, running
from fetching import FETCH, SHARD_1, SHARD_2, environment, run_fetch, write_source
from headfirst.node.weights.fetch.fetch_file import part_path
from headfirst.node.weights.fetch.source import Listing, RemoteFile, client_failed
from headfirst.node.weights.files import list_files

MEGABYTES = 24


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    write_source(folder, MEGABYTES)
    return folder


@pytest.fixture
def hub(source: Path) -> Iterator[FakeHub]:
    files = {name: (source / name).read_bytes() for name in list_files(source)}
    with running(files | {"pytorch_model.bin": b"the same again", ".gitattributes": b"*.safetensors"}) as hub:
        yield hub


def is_whole(target: Path, source: Path) -> bool:
    there = [name for name in list_files(target) if name != "headfirst-manifest.json"]
    return there == list_files(source) and all(
        (target / name).read_bytes() == (source / name).read_bytes() for name in there
    )


@pytest.mark.parametrize("name", HUBS)
def test_a_model_is_fetched_whole_and_proven(name: str, hub: FakeHub, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "got"
    done, result = run_fetch(hub, target, source=name)
    assert done.returncode == 0, done.stderr
    assert result["changed"]
    assert is_whole(target, source), "only the checkpoint: no other format of the weights, no dot file"
    origin = json.loads((target / "headfirst-manifest.json").read_text())["origin"]
    assert {**origin, "pinned": ""} == {"source": name, "model": MODEL, "revision": "", "pinned": ""}
    assert origin["pinned"] == COMMIT if name == "huggingface" else len(origin["pinned"]) == 64
    assert hub.order[:2] == ["config.json", "model.safetensors.index.json"]
    assert hub.sent.total() == sum((source / file).stat().st_size for file in list_files(source))

    before = dict(hub.sent)
    done, result = run_fetch(hub, target, source=name)
    assert (done.returncode, result["changed"]) == (0, False)
    (target / SHARD_2).write_bytes(bytes((target / SHARD_2).stat().st_size))
    (target / "config.json").write_text("{}")
    done, result = run_fetch(hub, target, source=name)
    assert (done.returncode, result["changed"], is_whole(target, source)) == (0, True, True)
    again = {file for file, count in hub.sent.items() if count != before[file]}
    assert again == {SHARD_2, "config.json"}, "what is right is not fetched again"


@pytest.mark.parametrize("name", HUBS)
def test_what_passes_is_tried_again(name: str, hub: FakeHub, source: Path, tmp_path: Path) -> None:
    hub.cut[SHARD_1] = 2
    hub.wrong[SHARD_2] = 1
    hub.busy["config.json"] = hub.busy[FakeHub.LISTING] = 1
    started = time.monotonic()
    done, _ = run_fetch(hub, tmp_path / "got", source=name)
    assert done.returncode == 0, done.stderr
    assert is_whole(tmp_path / "got", source)
    assert time.monotonic() - started > 2, "as long as Retry-After says, twice"
    assert hub.sent[SHARD_1] <= len(hub.files[SHARD_1]) + 20_000_000, "two cuts, of 10 MB in flight at most"
    assert hub.sent[SHARD_2] == 2 * len(hub.files[SHARD_2])


@pytest.mark.parametrize("name", HUBS)
def test_bytes_that_stay_wrong_are_refused_with_the_file(name: str, hub: FakeHub, tmp_path: Path) -> None:
    hub.wrong[SHARD_2] = 99
    done, result = run_fetch(hub, tmp_path / "got", source=name)
    assert done.returncode == 3, done.stderr
    assert f"{SHARD_2} was received with errors twice: the received file does not have the sha256" in str(
        result["msg"]
    )
    assert not (tmp_path / "got" / "headfirst-manifest.json").exists()
    assert not (tmp_path / "got" / SHARD_2).exists()
    assert hub.wrong[SHARD_2] == 97


@pytest.mark.parametrize("name", HUBS)
def test_a_killed_fetch_goes_on(name: str, hub: FakeHub, source: Path, tmp_path: Path) -> None:
    hub.rate, target = 20e6, tmp_path / "got"
    command = [*FETCH, MODEL, str(target), "--from", name]
    fetching = subprocess.Popen(command, env=environment(hub, tmp_path))
    deadline = time.monotonic() + 20
    while hub.sent[SHARD_1] < 16_000_000 and time.monotonic() < deadline:
        time.sleep(0.02)
    fetching.kill()
    fetching.wait()
    sent = hub.sent.copy()
    assert len(hub.files[SHARD_1]) > sent[SHARD_1] >= 16_000_000
    hub.rate = 0
    done, _ = run_fetch(hub, target, source=name)
    assert done.returncode == 0, done.stderr
    assert is_whole(target, source)
    assert hub.sent[SHARD_1] - sent[SHARD_1] < 0.7 * len(hub.files[SHARD_1]), (
        "the shard in flight is continued"
    )
    assert hub.sent[SHARD_2] == sent[SHARD_2], "a finished shard is not sent again"
    assert not list((target / ".headfirst" / "parts").glob("*")), "nothing is left over"


@pytest.mark.parametrize("name", HUBS)
def test_a_full_disk_is_said_and_the_next_run_goes_on(name: str, hub: FakeHub, tmp_path: Path) -> None:
    hub.rate, disk = 20e6, tmp_path / "disk"
    disk.mkdir()
    fetch = shlex.join([*FETCH, MODEL, str(disk / "got"), "--from", name])
    script = f"""set -e; mount -t tmpfs -o size=110m none {disk}
        {fetch} & until find {disk} -size +1M | grep -q .; do sleep 0.05; done
        head -c 200m /dev/zero >{disk}/filler 2>/dev/null || true
        wait $! || echo code $?; rm {disk}/filler; {fetch}"""
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script],
        env=environment(hub, tmp_path),
        capture_output=True,
        text=True,
        timeout=30,
    )
    if "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert "code 3" in done.stdout
    assert "the disk is full" in done.stderr
    assert done.returncode == 0, done.stderr
    assert hub.sent[SHARD_1] < 1.7 * len(hub.files[SHARD_1]), "what fitted is not sent again"


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
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
    name: str, arguments: tuple[str, ...], says: str, hub: FakeHub, tmp_path: Path
) -> None:
    model, *options = arguments
    done, result = run_fetch(hub, tmp_path / "got", *options, model, source=name)
    assert done.returncode == 2, done.stderr
    assert says in str(result["msg"])
    assert not list_files(tmp_path / "got")


@pytest.mark.parametrize("name", HUBS)
def test_a_hub_that_does_not_answer_is_not_ready(name: str, hub: FakeHub, tmp_path: Path) -> None:
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:1", "MODELSCOPE_ENDPOINT": "http://127.0.0.1:1"}
    impatient = {"MODELSCOPE_REPO_TREE_PAGE_MAX_ATTEMPTS": "1"}
    done, result = run_fetch(hub, tmp_path / "got", source=name, **nowhere, **impatient)
    assert done.returncode == 3, done.stderr
    assert "the hub cannot be used now" in str(result["msg"])


@pytest.mark.parametrize("name", HUBS)
def test_the_token_comes_from_a_private_file_and_is_told_to_nobody(
    name: str, hub: FakeHub, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("hf_secret\n")
    token.chmod(0o644)
    done, result = run_fetch(hub, tmp_path / "got", MODEL, f"--token-file={token}", source=name)
    assert done.returncode == 2
    assert "others can read this file" in str(result["msg"])
    token.chmod(0o600)
    hub.wrong[SHARD_1] = 2  # the token is not in what an error says either
    done, result = run_fetch(hub, tmp_path / "got", MODEL, f"--token-file={token}", source=name)
    assert done.returncode == 3, done.stderr
    assert "hf_secret" in str(hub.tokens)
    assert not [path for path in hub.tokens if path.startswith("/cdn/")], "the CDN is another host"
    said = done.stdout + done.stderr + json.dumps(result) + (tmp_path / "progress.json").read_text()
    assert "hf_secret" not in said
    assert SIGNATURE not in said
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path != token]
    assert not [path for path in files if b"hf_secret" in path.read_bytes()]


@pytest.mark.parametrize("name", HUBS)
def test_the_password_of_a_mirror_is_told_to_nobody(name: str, hub: FakeHub, tmp_path: Path) -> None:
    address = hub.url.replace("//", "//reader:s3cret@")
    mirror = {"HF_ENDPOINT": address, "MODELSCOPE_ENDPOINT": address}
    hub.cut[SHARD_1] = 1
    done, result = run_fetch(hub, tmp_path / "got", source=name, **mirror)
    assert done.returncode == 0 and "s3cret" not in done.stdout + done.stderr
    hub.listing_extra = {"extra": "x" * (33 << 20)}
    done, result = run_fetch(hub, tmp_path / "got", source=name, **mirror)
    assert "larger than" in str(result["msg"]) and "s3cret" not in done.stderr + str(result)
    assert "s3cret" not in str(client_failed(OSError(f"418 for url '{address}/api'"), MODEL))


@pytest.mark.parametrize("name", HUBS)
def test_a_hub_that_falls_silent_at_any_moment_is_asked_again(
    name: str, hub: FakeHub, source: Path, tmp_path: Path
) -> None:
    chance = random.Random(f"{name} 1")
    for file in (FakeHub.LISTING, *list_files(source)):
        hub.silent[file] = chance.choices(("answer", "headers", "body"), k=chance.randrange(3))
    impatient = {f"{client}_DOWNLOAD_TIMEOUT": "1" for client in ("HF_HUB", "MODELSCOPE")}
    impatient["MODELSCOPE_REPO_TREE_PAGE_TIMEOUT_SECONDS"] = "1"
    done, _ = run_fetch(hub, tmp_path / "got", source=name, **impatient)
    assert done.returncode == 0, done.stderr
    assert is_whole(tmp_path / "got", source)
    assert not any(hub.silent.values())


@pytest.mark.parametrize("moment", ["list", "answer", "body", "drips"])
def test_files_come_over_http_where_xet_falls_silent(
    moment: str, hub: FakeHub, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if moment == "drips":  # the library waits, and reads a byte now and then
        patient = "from headfirst.node.weights.fetch import xet; xet._SILENCE_LIMIT_S = 4; "
        monkeypatch.setattr(fetching, "FETCH", (FETCH[0], FETCH[1], patient + FETCH[2], FETCH[3]))
    with closing(FakeXet(moment)) as xet:
        hub.xet_url, hub.xet = xet.url, dict.fromkeys((SHARD_1, SHARD_2), "ab" * 32)
        # Without one of its own the client gives up after ten seconds, twice.
        impatient = {"HF_XET_CLIENT_READ_TIMEOUT": "1s"} if moment != "body" else {}
        tries = {"HF_XET_CLIENT_RETRY_MAX_ATTEMPTS": "1"}
        done, _ = run_fetch(hub, tmp_path / "got", source="huggingface", **tries, **impatient)
    assert done.returncode == 0, done.stderr
    assert is_whole(tmp_path / "got", source)
    assert "Xet storage cannot be used, HTTP instead" in done.stderr


@pytest.mark.parametrize("works", [True, False])
def test_xet_brings_the_large_files_where_the_hub_offers_it(
    works: bool, hub: FakeHub, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "store").mkdir()
    hub.xet_url = f"local://{tmp_path / 'store'}"
    hub.xet = _stored(hub.xet_url, source) if works else {SHARD_1: "0" * 64, SHARD_2: "0" * 64}
    data = hub.files[SHARD_1]
    file = RemoteFile(SHARD_1, len(data), hashlib.sha256(data).hexdigest())
    part = part_path(file, Listing(COMMIT, []), tmp_path / "got")
    part.parent.mkdir(parents=True)
    part.write_bytes(data[:9_000_000])  # either goes on where an earlier run was stopped
    done, _ = run_fetch(hub, tmp_path / "got", source="huggingface")
    assert done.returncode == 0, done.stderr
    assert is_whole(tmp_path / "got", source)
    assert hub.sent[SHARD_1] == (0 if works else len(data) - 9_000_000), "HTTP where Xet cannot be used"


def _stored(url: str, source: Path) -> dict[str, str]:
    """Put the shards into a Xet store, in another process, since one at a time has it open; their hashes."""
    script = (
        "import hf_xet, sys\n"
        "with hf_xet.XetSession().new_upload_commit(endpoint=sys.argv[1]) as commit:\n"
        "    uploads = [commit.start_upload_file(path) for path in sys.argv[2:]]\n"
        "print(*(upload.result().xet_info.hash for upload in uploads))\n"
    )
    command = [sys.executable, "-c", script, url, str(source / SHARD_1), str(source / SHARD_2)]
    hashes = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return dict(zip((SHARD_1, SHARD_2), hashes, strict=True))
