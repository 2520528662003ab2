"""`deploy credentials` without --rotate: what it prints of a service that is not up."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.cli.access import credentials
from headfirst.control.cli.verb import OutputFormat
from headfirst.control.credentials import secrets
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.settings import ServiceSettings
from host_records import HostRecords

ENGINE = ServiceSettings().engine_port
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


KEPT = secrets.Secrets().with_keys(["chat"])


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The inventory of a cluster that was up before its second service was added."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    HostRecords(tmp_path / "hosts", monkeypatch)
    path = tmp_path / "mine.ini"
    path.write_text(TEXT)
    secrets.save(load([path]), KEPT)
    return path


@pytest.mark.parametrize("as_json", [False, True])
def test_a_key_that_nothing_accepts_is_not_shown(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    credentials(RunOptions([path]), OutputFormat(as_json))
    first = capsys.readouterr().out
    assert KEPT.service_api_keys["chat"] in first
    shown = {word for word in first.replace('"', " ").split() if word.startswith("sk-")}
    assert shown == {key for key in (KEPT.engine_api_key, KEPT.service_api_keys["chat"]) if key in first}
    assert as_json or f"API key    none yet, until: deploy up {path}" in first
    assert KEPT.engine_admin_key == json.loads(first)["engine_admin_key"] if as_json else "Admin key" in first
    assert KEPT.engine_admin_key in first


@pytest.mark.parametrize("as_json", [False, True])
def test_of_one_service_only_its_key_is_shown(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    credentials(RunOptions([path], service="chat"), OutputFormat(as_json))
    text = capsys.readouterr().out
    assert {value for value in KEPT.values() if value in text} == {KEPT.service_api_keys["chat"]}
    assert f"http://192.0.2.7:{ENGINE}/v1" in text
    if as_json:
        assert json.loads(text).keys() == {"service", "api_key", "api"}
    for service, error, words in (
        ("embedding", NotReadyError, "no API key of embedding"),
        ("chat/0", InputError, "names a replica"),
    ):
        with pytest.raises(error, match=words):
            credentials(RunOptions([path], service=service), OutputFormat(as_json))
    with pytest.raises(InputError, match="replaces all credentials"):
        credentials(RunOptions([path], service="chat"), OutputFormat(as_json), rotate=True)
