"""The script that runs on nodes: run for real; docker, dmesg and nvidia-smi tell what is wanted."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from headfirst.common.container_state import container_state
from headfirst.control.evidence import node_script
from serving import QuietHandler, serving

SCRIPT = Path(node_script.__file__).read_text()
INSPECTED = {
    "Id": "1" * 64,
    "Image": "sha256:abc",
    "Created": "2026-01-01T10:00:00Z",
    "Path": "python3",
    "Args": ["-m", "sglang.launch_server"],
    "RestartCount": 1,
    "Config": {"Image": "engine:1", "Env": ["API_KEY=sesame", "CUDA_VERSION=12.8.1"]},
    "State": {
        "Status": "running",
        "Running": True,
        "Restarting": False,
        "ExitCode": 0,
        "OOMKilled": False,
        "Error": "",
        "StartedAt": "2026-01-01T10:00:00Z",
        "FinishedAt": "2026-01-01T09:59:59Z",
    },
}
DOCKER = """#!/bin/sh
case "$*" in
  inspect*) cat "$FIXTURES/inspect.json" ;;
  *--until*) echo "2026-01-01T09:59:58.0Z RuntimeError: before" ;;
  *) cat "$FIXTURES/log" ;;
esac
"""
DMESG = '#!/bin/sh\ncat "$FIXTURES/kernel.log" 2>/dev/null\n'
Gather = Callable[..., dict[str, Any]]


@pytest.fixture
def gather(tmp_path: Path) -> Gather:
    """Runs the script with the commands of `tmp_path` first on PATH; files there are what they tell."""
    (tmp_path / "inspect.json").write_text(json.dumps([INSPECTED]))
    (tmp_path / "log").write_text("")

    def run(key: str = "", **wanted: Any) -> dict[str, Any]:
        for name, text in {"docker": DOCKER, "dmesg": DMESG}.items():
            command = tmp_path / name
            if not command.exists():
                command.write_text(text)
            command.chmod(0o755)
        argument = json.dumps({"container": "engine", "health": "", "metrics": "", "probe": "", **wanted})
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "FIXTURES": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, argument],
            input=f"time\ntime\ngo {key}\n",
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        first, second, told = done.stdout.splitlines()
        assert float(second) >= float(first) > 1e9
        found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(told)))
        return found

    return run


def test_the_container_and_both_ends_of_a_long_log(gather: Gather, tmp_path: Path) -> None:
    lines = [
        f"2026-01-01T10:{n // 3600:02}:{n // 60 % 60:02}.{n:09}Z line {n} {'x' * 90}" for n in range(9000)
    ]
    (tmp_path / "log").write_text("\n".join(lines) + "\nno time here\n")
    told = gather()["engine"]
    state = container_state(told["inspected"])
    assert state.argv == ("python3", "-m", "sglang.launch_server")
    assert state.restarts == 1 and state.image == "engine:1"
    assert "sesame" not in str(told), "an environment has secrets"
    assert told["cuda"] == "12.8.1"
    assert told["earlier"] == ["2026-01-01T09:59:58.0Z RuntimeError: before"]
    assert told["log"][0].endswith("x")
    assert len(told["log"]) == len(set(told["log"]))
    assert " line 0 " in told["log"][0]
    assert " line 8999 " in told["log"][-1]


def test_a_line_that_is_cut_in_its_time_is_no_line(gather: Gather, tmp_path: Path) -> None:
    cut = "123456789Z the end of a line\n2026-01-01T10:00:01.5Z whole\n2026-01-01T10:00:0\n2026\n"
    (tmp_path / "log").write_text(cut)
    assert gather()["engine"]["log"] == ["2026-01-01T10:00:01.5Z whole"]


@pytest.mark.parametrize("extra", range(40))
def test_wherever_the_log_is_cut_only_whole_lines_come(
    extra: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = tmp_path / "docker"
    command.write_text('#!/bin/sh\ncat "$0.log"\n')
    command.chmod(0o755)
    line = "2026-01-01T10:00:01.123456789Z text"
    (tmp_path / "docker.log").write_text(f"{line}\n" * 30)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(node_script, "TAIL_BYTES", 200 + extra)
    for told in (node_script.logs("engine"), node_script.logs("engine", head=200 + extra)):
        assert len(told) >= 5
        assert set(told) == {line}


def test_no_container_and_no_docker(gather: Gather, tmp_path: Path) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\necho 'Error: No such container: engine' >&2\nexit 1\n")
    assert gather()["engine"] is None
    (tmp_path / "docker").write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    assert gather()["engine"] == {"problem": "Cannot connect to the Docker daemon"}


def test_telling_lines_of_the_kernel(gather: Gather, tmp_path: Path) -> None:
    xid = "NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus"
    (tmp_path / "kernel.log").write_text(
        f"[    1.000000] eth0: link up\n[   12.500000] {xid}\n[   13.000000] oom-kill:x\n"
    )
    (first, text), (second, _) = gather()["kernel"]
    assert text == xid
    assert second - first == pytest.approx(0.5, abs=0.01)


def test_the_driver_and_its_gpus(gather: Gather, tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho '0, 580.126.20, 74000, 100, 0'\n")
    smi.chmod(0o755)
    (gpu,) = gather()["driver"]["gpus"]
    assert (gpu["driver_version"], gpu["utilization.gpu"]) == ("580.126.20", "100")
    assert gpu["utilization.memory"] == "0"
    smi.write_text("#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n")
    assert gather()["driver"]["said"] == ["Failed to initialize NVML: Driver/library version mismatch"]


@pytest.fixture
def url() -> Iterator[str]:
    """An engine that serves, with its metrics behind a redirect."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            moved = self.path == "/metrics"
            self.send_response(307 if moved else 200)
            if moved:
                self.send_header("Location", f"http://{self.headers['Host']}/metrics/")
            told = self.headers["Authorization"] or ""
            body = b"" if moved else f"sglang:token_usage 0.5\n# {told}\n".encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers["Content-Length"]))
            told = json.dumps([self.path, self.headers["Authorization"], json.loads(asked)])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(told.encode())

    with serving(Handler) as url:
        yield url


def test_health_and_metrics(gather: Gather, url: str) -> None:
    told = gather("sesame", health=f"{url}/health_generate", metrics=f"{url}/metrics")
    assert told["health"]["status"] == 200
    assert told["metrics"] == {"status": 200, "text": "sglang:token_usage 0.5\n# Bearer sesame\n"}


@pytest.mark.parametrize(("key", "sent"), [("sesame", "Bearer sesame"), ("", None)])
def test_a_probe_carries_the_key_that_is_in_no_argument(
    gather: Gather, url: str, key: str, sent: str | None
) -> None:
    told = gather(key, probe=f"{url}/v1/chat/completions", body={"model": "demo"})
    assert told["probe"]["status"] == 200
    assert json.loads(told["probe"]["text"]) == ["/v1/chat/completions", sent, {"model": "demo"}]


def test_nothing_listens(gather: Gather) -> None:
    told = gather(health="http://127.0.0.1:9/health_generate")
    assert told["health"]["status"] == 0
    assert "refused" in told["health"]["text"]
    assert told["metrics"] is None
