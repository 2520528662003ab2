"""`deploy keys` without hosts: rates, names, what is kept of a key."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from command import deploy
from headfirst.common.errors import InputError
from headfirst.control.credentials.local_ca import new_authority
from headfirst.control.credentials.secrets import Secrets, new_key
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.verbs import keys
from headfirst.control.ownership.node_script import LIMIT
from host_records import HostRecords

ONE = "[head]\nn1 ansible_host=192.0.2.7\n[all:vars]\nengine_device=cpu\nmodel_source=demo\n"


def options(folder: Path, text: str) -> RunOptions:
    path = folder / "mine.ini"
    path.write_text(text)
    return RunOptions([path])


@pytest.mark.parametrize(("rate", "number"), [(None, None), ("60/min", 60), ("1000000/min", 1_000_000)])
def test_a_rate_is_a_number_of_requests_in_a_minute(rate: str | None, number: int | None) -> None:
    assert keys.requests_per_minute(rate) == number


@pytest.mark.parametrize("rate", ["60", "0/min", "-1/min", "1.5/min", "60/s", "2000000/min", "60/min "])
def test_another_rate_is_refused_with_an_example(rate: str) -> None:
    with pytest.raises(InputError) as error:
        keys.requests_per_minute(rate)
    assert "60/min" in str(error.value.hint)


def test_of_a_key_only_a_hash_is_kept() -> None:
    key, kept = new_key("chat", 60)
    assert kept.sha256 == hashlib.sha256(key.encode()).hexdigest()
    secrets = Secrets(named_keys={"alice": kept})
    assert key not in secrets.model_dump_json()
    assert key != new_key("chat", 60)[0]


def test_a_rotation_keeps_the_keys_of_people() -> None:
    assert "named_keys" not in Secrets().model_dump_json(exclude_none=True), "written as before"
    _, kept = new_key(None, None)
    before = Secrets(named_keys={"alice": kept})
    assert before.rotated().named_keys == before.named_keys
    assert before.rotated().engine_api_key != before.engine_api_key


def test_the_largest_record_of_keys_fits_in_the_file_on_the_head() -> None:

    _, kept = new_key("s" * 31, 1_000_000)
    most = {f"{number:03}".ljust(63, "x"): kept for number in range(keys.MOST)}
    names = [f"{number:02}".ljust(60, "y") + ".example.org" for number in range(50)]
    secrets = Secrets(named_keys=most, local_ca=new_authority("x", names).shared)
    assert len(secrets.model_dump_json(indent=2)) < LIMIT


@pytest.mark.parametrize("name", ["", "Alice", "a b", "a|b", "-a", "a" * 64, "../a"])
def test_a_name_that_a_record_cannot_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be the name of a key"):
        keys.add(options(tmp_path, ONE + "proxy=true\n"), name, None)


def test_services_that_are_not_there_or_have_no_proxy_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no service is called other"):
        keys.add(replace(options(tmp_path, ONE + "proxy=true\n"), service="other"), "alice", None)
    with pytest.raises(InputError, match="need the proxy") as error:
        keys.add(options(tmp_path, ONE), "alice", None)
    assert "proxy=true" in str(error.value.hint)


TWO = """\
[chat]
n1 ansible_host=192.0.2.7
[chat:vars]
model=/models/a
[small]
n2 ansible_host=192.0.2.8
[small:vars]
model=/models/b
[all:vars]
gpus=8
model_source=path
proxy=true
"""


@pytest.mark.parametrize(("words", "service"), [([], None), (["--service", "small"], "small")])
def test_a_key_is_kept_for_the_service_that_is_named(
    words: list[str], service: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    hosts = HostRecords(tmp_path / "hosts", monkeypatch)
    monkeypatch.setattr(keys, "run_stages", lambda *_: None)  # the proxy's part
    path = str(options(tmp_path, TWO).inventories[0])
    done = deploy("keys", "add", path, "alice", *words, "--json")
    assert done.returncode == 0, done.stderr
    kept = hosts.record("n1", "/etc/headfirst/credentials.json") or {}
    assert kept["named_keys"]["alice"].get("service") == service
    assert [url.rpartition("/")[0].rpartition("/")[2] for url in json.loads(done.stdout)["urls"]] == (
        [service] if service else ["chat", "small"]
    )
