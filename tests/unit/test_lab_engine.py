"""An engine is stopped by the lab only if the lab had started it."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from headfirst.control.machine import engine


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)  # no sudo for one's own processes
    made = tmp_path / "headfirst" / "docker-engine"
    made.mkdir(parents=True)
    return made


@pytest.fixture(params=["dockerd", "another"])
def process(request: pytest.FixtureRequest) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    name = request.param
    with subprocess.Popen(["bash", "-c", f"exec -a {name} sleep 60"]) as running:
        # Until bash has become the process of that name.
        while not Path(f"/proc/{running.pid}/cmdline").read_bytes().startswith(name.encode()):
            pass
        yield name, running
        running.kill()


def test_our_engine_is_stopped_and_a_process_that_took_its_number_is_not(
    home: Path, process: tuple[str, subprocess.Popen[bytes]]
) -> None:
    name, running = process
    (home / "dockerd.pid").write_text(str(running.pid))
    engine.stop_ours()
    if name == "dockerd":
        # Its command line is gone from /proc a moment before it can be waited for.
        assert running.wait(timeout=10) == -signal.SIGTERM
    else:
        assert running.poll() is None
    assert not home.exists()


def test_an_engine_of_others_is_left_alone(home: Path) -> None:
    engine.stop_ours()
    assert home.exists()
