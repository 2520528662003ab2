"""The script that runs a rehearsed rank on its host: run for real; docker and nvidia-smi are fixtures."""

from __future__ import annotations

import base64
import json
import os
import select
import socket
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from headfirst.control.rehearsal import node_script
from serving import QuietHandler, serving

NAME = "headfirst-rehearsal-r0"
# Each fixture is a file: names of running and of all containers, the state of ours, devices of an engine.
DOCKER = """#!/bin/sh
echo "$@" >> "$FIXTURES/calls"
case "$*" in
  "ps --all"*) cat "$FIXTURES/all" ;;
  ps*) cat "$FIXTURES/running" ;;
  "image inspect"*) cat "$FIXTURES/image" || { echo "No such image"; exit 1; } ;;
  *DeviceRequests*) cat "$FIXTURES/devices" ;;
  inspect*) cat "$FIXTURES/state" ;;
  run*) cp "$FIXTURES/folder/$NAME/keys" "$FIXTURES/seen" ; cat "$FIXTURES/run" 2>/dev/null && exit 125 ;;
esac
exit 0
"""
NVIDIA_SMI = """#!/bin/sh
case "$*" in
  *query-gpu*) printf '0, GPU-a\\n1, GPU-b\\n' ;;
  *) cat "$FIXTURES/processes" ;;
esac
"""


class Running:
    """The script as a process of its own, spoken to in lines."""

    def __init__(self, fixtures: Path, **changes: Any) -> None:
        self.fixtures = fixtures
        folder = fixtures / "folder" / NAME
        request = {
            "runtime": "docker",
            "name": NAME,
            "prefix": "headfirst-rehearsal-",
            "folder": str(folder),
            "beside": [NAME],
            "image": "engine:1",
            "cuda": False,
            "gpus": None,
            "folders": [],
            "complete": ["done.json"],
            "files": {str(folder / "keys"): "sesame"},
            "once": [],
            "run": ["docker", "run", "--name", NAME, "engine:1"],
            "listens": None,
            "head": None,
            "ready": None,
        }
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                Path(node_script.__file__).read_text().replace("POLL_S = 2", "POLL_S = 0.05"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PATH": f"{fixtures}:{os.environ['PATH']}",
                "FIXTURES": str(fixtures),
                "NAME": NAME,
            },
        )
        self.send(json.dumps({**request, **changes}))

    def send(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def next(self) -> dict[str, Any]:
        assert self.process.stdout
        assert select.select([self.process.stdout], [], [], 20)[0], "the script is silent"
        event: dict[str, Any] = json.loads(self.process.stdout.readline())
        return event

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    @property
    def calls(self) -> list[str]:
        return (self.fixtures / "calls").read_text().splitlines()


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    for name, text in {"docker": DOCKER, "nvidia-smi": NVIDIA_SMI}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for name, text in {
        "all": "",
        "running": "",
        "image": "sha256:1",
        "state": "true 0",
        "devices": "null",
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "processes").write_text("")
    begun: list[Running] = []

    def go(**changes: Any) -> Running:
        begun.append(Running(tmp_path, **changes))
        return begun[-1]

    yield go
    for running in begun:
        running.process.kill()
        running.process.wait()


def test_a_rank_is_started_and_removed_with_its_files(start: Start, tmp_path: Path) -> None:
    running = start()
    assert running.next() == {"event": "started"}
    assert (tmp_path / "seen").read_text() == "sesame"
    assert (tmp_path / "folder" / NAME / "keys").stat().st_mode & 0o777 == 0o600
    running.send("stop 3")
    assert running.next() == {"event": "gone"}
    assert running.calls[-2:] == [f"stop --time 3 {NAME}", f"rm --force --volumes {NAME}"]
    assert not (tmp_path / "folder" / NAME).exists()


def test_it_ends_where_the_controller_is_gone(start: Start) -> None:
    running = start()
    assert running.next()["event"] == "started"
    running.close()
    assert running.process.wait(20) == 0
    assert running.calls[-1] == f"rm --force --volumes {NAME}"


def test_what_an_earlier_one_left_goes_first_and_nothing_else(start: Start, tmp_path: Path) -> None:
    names = [NAME, "headfirst-rehearsal-old-r0", "headfirst-rehearsal-b-r0", "headfirst-engine", "database"]
    (tmp_path / "all").write_text("\n".join(names))
    for name in names:
        (tmp_path / "folder" / name).mkdir(parents=True)
    running = start(beside=[NAME, "headfirst-rehearsal-b-r0"])
    assert running.next()["event"] == "started"
    assert f"rm --force {NAME} headfirst-rehearsal-old-r0" in running.calls
    assert not (tmp_path / "folder" / "headfirst-rehearsal-old-r0").exists()
    assert (tmp_path / "folder" / "headfirst-rehearsal-b-r0").exists()


def test_a_missing_image_is_stated(start: Start, tmp_path: Path) -> None:
    (tmp_path / "image").unlink()
    assert start().next() == {"event": "refused", "why": "the image engine:1 is not on this host"}


def test_on_cpus_nothing_starts_beside_a_rank_that_serves(start: Start, tmp_path: Path) -> None:
    (tmp_path / "running").write_text("database\nheadfirst-engine.a1b2\n")
    running = start()
    assert running.next() == {"event": "refused", "why": "headfirst-engine.a1b2 serves here"}
    assert running.next() == {"event": "gone"}
    assert not any(call.startswith("run") for call in running.calls)


@pytest.mark.parametrize(
    ("gpus", "processes", "devices", "why"),
    [
        (["1"], "GPU-a, 7, 80000 MiB\n", "", None),
        (["GPU-b"], "GPU-b, 7, 80000 MiB\n", "", "GPU 1 is in use by process 7 with 80000 MiB"),
        (None, "GPU-a, 7, 80000 MiB\n", "", "GPU 0 is in use by process 7 with 80000 MiB"),
        (["1"], "", '[{"DeviceIDs": ["0"]}]', None),
        (["1"], "", '[{"DeviceIDs": ["GPU-b"]}]', "headfirst-engine serves here"),
        (["1"], "", '[{"DeviceIDs": null, "Count": -1}]', "headfirst-engine serves here"),
        (["1"], "", "no JSON", "headfirst-engine serves here"),
    ],
)
def test_nothing_starts_on_gpus_in_use(
    start: Start, tmp_path: Path, gpus: list[str] | None, processes: str, devices: str, why: str | None
) -> None:
    (tmp_path / "processes").write_text(processes)
    (tmp_path / "devices").write_text(devices)
    (tmp_path / "running").write_text("headfirst-engine\n" if devices else "")
    event = start(cuda=True, gpus=gpus).next()
    assert event == ({"event": "refused", "why": why} if why else {"event": "started"})


def test_small_files_take_the_place_of_a_folder_that_is_not_complete(start: Start, tmp_path: Path) -> None:
    whole, lacking = tmp_path / "whole", tmp_path / "lacking"
    whole.mkdir()
    (whole / "done.json").touch()
    volumes = [f"--volume={whole}", f"{whole}:{whole}:ro", f"{lacking}:{lacking}:ro"]
    running = start(folders=[str(whole), str(lacking)], run=["docker", "run", *volumes])
    assert running.next() == {"event": "folders", "missing": [str(lacking)]}
    files = {str(lacking): {"sub/config.json": base64.b64encode(b"{}").decode()}}
    running.send(f"folders {base64.b64encode(zlib.compress(json.dumps(files).encode())).decode()}")
    assert running.next() == {"event": "started"}
    model = tmp_path / "folder" / NAME / "model-0"
    assert (model / "sub" / "config.json").read_text() == "{}"
    assert f"run --volume={whole} {whole}:{whole}:ro {model}:{lacking}:ro" in running.calls


def test_why_a_container_does_not_start(start: Start, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("could not select device driver")
    running = start()
    assert running.next() == {"event": "failed", "why": "could not select device driver"}
    running.send("stop 0")
    assert running.next() == {"event": "gone"}


def test_the_end_of_a_rank_is_told_once_and_its_container_stays(start: Start, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("false 3")
    running = start()
    assert [running.next(), running.next()] == [{"event": "started"}, {"event": "exited", "code": 3}]
    assert not any(call.startswith("rm --force --volumes") for call in running.calls)


def test_the_head_tells_that_its_rank_listens_and_another_host_that_it_gets_no_connection(
    start: Start,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        head = start(listens=port)
        assert [head.next()["event"], head.next()["event"]] == ["started", "listening"]
        worker = start(head=["127.0.0.1", port])
        assert worker.next()["event"] == "started"
        worker.send("reach")
    blocked = start(head=["127.0.0.1", port])
    assert blocked.next()["event"] == "started"
    blocked.send("reach")
    assert blocked.next() == {"event": "unreachable", "why": "Connection refused"}


def test_status_200_is_judged_and_no_text(start: Start) -> None:
    asked: list[tuple[str, str | None]] = []

    class Api(QuietHandler):
        def answer(self) -> None:
            asked.append((f"{self.command} {self.path}", self.headers["Authorization"]))
            self.send_response(503 if len(asked) == 1 else 200)
            self.end_headers()
            self.wfile.write(b"\xff nonsense of random weights")

        do_GET = do_POST = answer

    with serving(Api) as url:
        ready = {"url": url, "path": "/health", "probe_path": "/v1/chat", "body": {"model": "m"}, "key": "k"}
        running = start(ready=ready)
        assert [running.next()["event"], running.next()["event"]] == ["started", "serving"]
    assert asked == [(path, "Bearer k") for path in ("GET /health", "GET /health", "POST /v1/chat")]
