"""A hold that a person set outlives the runs of `deploy`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from headfirst.node.supervisor import cli, host_state
from headfirst.node.supervisor.host_state import Holds

NAME = "headfirst-engine"


def test_a_run_neither_replaces_nor_ends_a_hold_of_a_person(tmp_path: Path) -> None:
    here = Holds(tmp_path)
    assert here.hold(NAME, 60)
    before = (tmp_path / f"holds/{NAME}.json").read_text()
    assert not here.hold(NAME, 3600, by_run=True)
    here.release(NAME, by_run=True)
    assert (tmp_path / f"holds/{NAME}.json").read_text() == before
    assert here.is_held(NAME)
    here.release(NAME)
    assert not here.is_held(NAME)


def test_a_run_replaces_and_ends_the_hold_of_a_run(tmp_path: Path) -> None:
    here = Holds(tmp_path)
    assert here.hold(NAME, 60, by_run=True)
    assert here.hold(NAME, 60, by_run=True)
    here.release(NAME, by_run=True)
    assert not here.is_held(NAME)


def test_a_hold_of_a_person_that_has_ended_holds_no_run_up(tmp_path: Path) -> None:
    here = Holds(tmp_path)
    here.hold(NAME, 0)
    assert here.hold(NAME, 60, by_run=True)


@pytest.mark.parametrize(("lock", "replaced"), [("aa", True), ("", False)])
def test_a_hold_of_an_earlier_release_is_a_runs_where_it_has_a_lock(
    tmp_path: Path, lock: str, replaced: bool
) -> None:
    here = Holds(tmp_path)
    here.hold(NAME, 60)
    file = tmp_path / f"holds/{NAME}.json"
    document = {**json.loads(file.read_text()), "lock": lock}
    del document["by_run"]
    file.write_text(json.dumps(document))
    (tmp_path / "lock.json").write_text(
        json.dumps({"token": "aa", "ends": document["ends"], "lease_s": document["seconds"]})
    )
    assert here.hold(NAME, 60, by_run=True) is replaced


def test_the_role_gets_the_command_that_ends_the_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(host_state.Holds.__init__, "__defaults__", (tmp_path,))
    program = "/opt/headfirst/venv/bin/headfirst-supervisor"
    monkeypatch.setattr(sys, "argv", [program, "hold", NAME])
    assert cli.main() == 0
    monkeypatch.setenv("HEADFIRST_RUN", "1")
    assert cli.main() == 3
    assert f"{program} release {NAME}" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", [program, "release", NAME])
    assert cli.main() == 0
    assert Holds(tmp_path).is_held(NAME)
    monkeypatch.delenv("HEADFIRST_RUN")
    assert cli.main() == 0
    assert not Holds(tmp_path).is_held(NAME)
