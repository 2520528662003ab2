"""Labs that go up and down at the same time."""

from pathlib import Path
from threading import Event, Thread

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.common.state_files import exclusive
from headfirst.control.lab import lifecycle
from headfirst.control.lab.types import Lab, LabNode
from headfirst.control.machine import engine, packages
from headfirst.control.paths import state_dir


def test_a_lab_goes_down_after_what_another_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    asked = Event()
    monkeypatch.setattr(engine, "connect", asked.set)
    node = LabNode("node1", "10.213.96.11")
    lab = Lab("test-two", "10.213.96.0/24", (node,), tmp_path / "test-two", tmp_path)
    with exclusive(state_dir("lab")):
        down = Thread(target=lifecycle.down, args=(lab,))
        down.start()
        assert not asked.wait(0.5)
    down.join(60)
    assert asked.is_set()
    assert not down.is_alive()


def test_nodes_of_an_engine_that_cannot_be_started_are_not_reported_as_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(engine, "connect", lambda: None)
    monkeypatch.setattr(packages, "missing", lambda needed: [])

    def refuse(progress: object) -> None:
        raise NotReadyError("The Docker Engine did not start in 60 s.")

    monkeypatch.setattr(engine, "ensure", refuse)
    lab = Lab("test-dead", "10.213.95.0/24", (), tmp_path / "test-dead", tmp_path)
    lifecycle.down(lab)  # it was never up
    lab.state_dir.mkdir()
    with pytest.raises(NotReadyError, match="did not start"):
        lifecycle.down(lab)
    assert lab.state_dir.exists()
