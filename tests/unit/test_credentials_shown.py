"""`deploy credentials` without --rotate: what it prints of a service that is not up."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from headfirst.control.cli.access import credentials
from headfirst.control.cli.verb import Output
from headfirst.control.credentials import secrets
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.inventory.inventory import load
from host_records import HostRecords

TEXT = """\
[chat]
n1 ansible_host=192.0.2.7
[embedding]
n2 ansible_host=192.0.2.8
[chat:vars]
model=headfirst-demo
[embedding:vars]
model=headfirst-demo-embedding
[all:vars]
engine_device=cpu
model_source=demo
"""


@pytest.mark.parametrize("as_json", [False, True])
def test_a_key_that_nothing_accepts_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    HostRecords(tmp_path / "hosts", monkeypatch)
    path = tmp_path / "mine.ini"
    path.write_text(TEXT)
    # The cluster was up before the second service was added.
    kept = secrets.Secrets().with_keys(["chat"])
    secrets.save(load([path]), kept)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    credentials(RunOptions([path]), Output(as_json))
    first = capsys.readouterr().out
    assert kept.service_api_keys["chat"] in first
    assert [word for word in first.replace('"', " ").split() if word.startswith("sk-")] == [
        key for key in (kept.engine_api_key, kept.service_api_keys["chat"]) if key in first
    ]
    assert as_json or f"API key    none yet, until: deploy up {path}" in first
