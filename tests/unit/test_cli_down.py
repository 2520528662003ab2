"""`deploy down --data`: what it deletes is printed, and it asks before it deletes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from headfirst.common.errors import HeadfirstError, InputError
from headfirst.control.cli import down as verb
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.verbs.down import DownTarget
from headfirst.control.inventory.inventory import load


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DownTarget:
    path = tmp_path / "prod.ini"
    path.write_text("[head]\nn1 ansible_host=192.0.2.1\n[all:vars]\nengine_device=cpu\nmodel_source=demo\n")
    monkeypatch.setattr(
        "headfirst.control.deployment.verbs.down.data_bytes", lambda target: {"n1": 31_200_000_000}
    )
    return DownTarget(load([path]), RunOptions([path]), ["n1"])


def terminal(monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    def prompt(text: str, **_: Any) -> str:
        assert "prod" in text
        return typed

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "prompt", prompt)


def test_the_name_of_the_cluster_confirms(
    found: DownTarget, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(monkeypatch, "prod")
    verb._confirm(found, yes=False)
    printed = capsys.readouterr().err
    assert "/var/lib/headfirst" in printed
    assert "n1  31.2 GB" in printed


@pytest.mark.parametrize("typed", ["", "y", "test"])
def test_anything_else_does_not(found: DownTarget, monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    terminal(monkeypatch, typed)
    with pytest.raises(HeadfirstError, match="nothing was changed"):
        verb._confirm(found, yes=False)


def test_without_a_terminal_it_needs_yes(
    found: DownTarget, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    with pytest.raises(InputError, match="no terminal") as caught:
        verb._confirm(found, yes=False)
    assert "--yes" in str(caught.value.hint)
    verb._confirm(found, yes=True)
    assert capsys.readouterr().err.count("31.2 GB") == 2
