"""The user's catalogue: written by `deploy models --refresh`, and extended by a file of the user's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_hub
import pytest
from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.checkpoints import silence, user_catalogue
from headfirst.control.checkpoints.describe import describe
from headfirst.control.cli.app import app
from headfirst.decide.model import catalogue
from headfirst.decide.model.catalogue_entries import checked
from model_files import CONFIG, INDEX, SHARDS
from typer.testing import CliRunner, Result

FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "model.safetensors.index.json": json.dumps(INDEX).encode(),
    "chat_template.jinja": b"{{ messages }}",
    **SHARDS,
}
QWEN = {"same_as": "Qwen/Qwen3-32B", "source": "our own fine-tune"}
INVENTORY = "[head]\nn1 ansible_host=192.0.2.1 gpus=8 gpu=H100-80G nic=eth0 hca=none\n[all:vars]\n"


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for kind in ("CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yield
    catalogue.extend({})


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_hub.FakeHub]:
    with fake_hub.running(dict(FILES)) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("MODELSCOPE_ENDPOINT", server.url)
        yield server


def own(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "config/headfirst/catalogue.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["models", *words])


def refresh(*ids: str, source: str = "huggingface") -> Result:
    return run("--refresh", "--model-source", source, *(word for id in ids for word in ("--model", id)))


def test_the_built_in_catalogue_passes_the_check() -> None:
    entries = {
        id: {name: value for name, value in entry.items() if name != "remote_code"}
        for id, entry in catalogue.built_in().items()
    }
    assert checked(entries, where="catalogue.json", known={}) == entries


def test_a_file_of_the_users_own_extends_the_catalogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(tmp_path, {"team/tuned": QWEN, "qwen/qwen3-8b": {**QWEN, "source": "another"}})
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    inventory = tmp_path / "cluster.ini"
    inventory.write_text(INVENTORY)
    listed = json.loads(run(str(inventory), "--json", "--model", "TEAM/tuned").stdout)
    assert [offer["model"] for offer in listed["offers"]] == ["team/tuned"]
    ids = catalogue.ids()
    assert len(ids) == len({id.lower() for id in ids})
    tuned, base = catalogue.lookup("team/tuned"), catalogue.lookup("Qwen/Qwen3-32B")
    assert tuned and base and tuned.total_bytes == base.total_bytes
    replaced = catalogue.lookup("Qwen/Qwen3-8B")
    assert replaced and replaced.total_bytes == base.total_bytes
    inventory.write_text(f"{INVENTORY}model=team/tuned\n")
    assert CliRunner().invoke(app, ["plan", str(inventory)]).exit_code == 0


BAD: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "is not JSON"),
    "a list": ([], "is not an object"),
    "a bad id": ({"../x": QWEN}, "../x"),
    "an entry that is text": ({"a/b": "Qwen"}, "a/b"),
    "an unknown key": ({"a/b": {**QWEN, "confg": {}}}, "confg"),
    "no source": ({"a/b": {"config": CONFIG, "weights": {}}}, "source"),
    "no config": ({"a/b": {"source": "x", "weights": {}}}, "config"),
    "no weights": ({"a/b": {"source": "x", "config": CONFIG}}, "weights"),
    "an unknown base": ({"a/b": {"source": "x", "same_as": "c/d"}}, "c/d"),
    "a circle": (
        {"a/b": {"source": "x", "same_as": "c/d"}, "c/d": {"source": "x", "same_as": "a/b"}},
        "same_as",
    ),
    "a config without layers": (
        {"a/b": {"source": "x", "config": {"architectures": ["X"]}, "weights": {"shards": 1}}},
        "num_hidden_layers",
    ),
    "a size that is text": ({"a/b": {**QWEN, "weights": {"total_bytes": "1"}}}, "total_bytes"),
    "a part of a measurement": (
        {"a/b": {**QWEN, "weights": {"measured": {"by_dtype": {"BF16": 1}, "by_part": {}}}}},
        "bf16_by_part",
    ),
    "a name with a format": ({"a/b": {**QWEN, "weights": {"shard_name": "{0.__class__}"}}}, "shard_name"),
    "a name that leaves its folder": (
        {"a/b": {**QWEN, "weights": {"files": {"../x.safetensors": 1}}}},
        "../x",
    ),
    "an unknown dtype": ({"a/b": {**QWEN, "weights": {"parameters": {"BF17": 1}}}}, "BF17"),
    "a date that is none": ({"a/b": {**QWEN, "released": "May"}}, "released"),
    "code that may run": (
        {"a/b": {**QWEN, "remote_code": {"commits": {"huggingface": "0" * 40}}}},
        "trust_remote_code",
    ),
}


@pytest.mark.parametrize(("document", "words"), BAD.values(), ids=BAD)
def test_an_error_names_the_file_and_the_entry(tmp_path: Path, document: Any, words: str) -> None:
    path = own(tmp_path, document)
    with pytest.raises(InputError) as raised:
        user_catalogue.load()
    assert str(path) in str(raised.value)
    assert words in str(raised.value)
    if isinstance(document, dict) and "a/b" in document:
        assert "a/b" in str(raised.value)


@pytest.mark.parametrize("source", ["huggingface", "modelscope"])
def test_a_refreshed_model_is_as_the_hub_describes_it(hub: fake_hub.FakeHub, source: str) -> None:
    done = refresh(fake_hub.MODEL, source=source)
    assert done.exit_code == 0, done.output
    user_catalogue.load()
    described = describe(fake_hub.MODEL, source)
    entry = catalogue.lookup(fake_hub.MODEL)
    assert entry == described.model_copy(update={"source": "catalogue"})
    assert (
        entry
        and entry.bytes_by_part
        and [shard.bytes for shard in entry.shards] == [len(data) for data in SHARDS.values()]
    )


def test_each_model_is_stored_when_it_is_read(hub: fake_hub.FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    done = refresh(fake_hub.MODEL, fake_hub.GATED, "team/none")
    assert done.exit_code == 1
    assert "1 of 3" in done.output and "3 of 3" in done.output
    assert "HTTP 403" in done.output and "has no team/none" in done.output
    user_catalogue.load()
    assert catalogue.lookup(fake_hub.MODEL)
    hub.requests.clear()
    assert refresh(fake_hub.MODEL).exit_code == 0
    assert len(hub.requests) == 1


def test_a_hub_that_goes_away_ends_the_refresh(
    hub: fake_hub.FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.shutdown()
    hub.server_close()
    monkeypatch.setattr(silence, "LIMIT_S", 0.3)
    done = refresh(fake_hub.MODEL, "team/other")
    assert isinstance(done.exception, NotReadyError)
    assert "0 of 2" in str(done.exception) and "again" in str(done.exception)


def test_the_json_of_a_refresh(hub: fake_hub.FakeHub) -> None:
    done = run(
        "--refresh", "--model-source", "huggingface", "--model", fake_hub.MODEL, "--model", "team/x", "--json"
    )
    report = json.loads(done.stdout)
    first, second = report["models"]
    assert first == {
        "model": fake_hub.MODEL,
        "state": "new",
        "content": fake_hub.COMMIT,
        "reason": None,
    }
    assert second["state"] == "failed" and "has no team/x" in second["reason"]
    assert Path(report["file"]).is_file()
    again = json.loads(
        run("--refresh", "--model-source", "huggingface", "--model", fake_hub.MODEL, "--json").stdout
    )
    assert again["models"][0]["state"] == "same"
    hub.commit = "beef" * 10
    hub.files["config.json"] = json.dumps(CONFIG | {"max_position_embeddings": 4242}).encode()
    last = json.loads(
        run("--refresh", "--model-source", "huggingface", "--model", fake_hub.MODEL, "--json").stdout
    )
    assert last["models"][0]["state"] == "changed"


def test_all_models_are_those_of_the_catalogue(
    hub: fake_hub.FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "ids", lambda: [fake_hub.MODEL])
    done = refresh()
    assert done.exit_code == 0, done.output
    assert "1 of 1" in done.output


def test_a_users_own_file_wins_over_what_was_read(hub: fake_hub.FakeHub, tmp_path: Path) -> None:
    refresh(fake_hub.MODEL)
    own(tmp_path, {fake_hub.MODEL: QWEN})
    user_catalogue.load()
    entry = catalogue.lookup(fake_hub.MODEL)
    assert entry and entry.architecture == "Qwen3ForCausalLM"


def test_what_a_hub_sends_gives_no_trust(hub: fake_hub.FakeHub) -> None:
    hub.files["config.json"] = json.dumps(CONFIG | {"auto_map": {"AutoConfig": "x.Y"}}).encode()
    refresh(fake_hub.MODEL)
    user_catalogue.load()
    assert catalogue.trusted_commit(fake_hub.MODEL, "huggingface") is None
    assert catalogue.trusted_commit("deepseek-ai/DeepSeek-R1", "huggingface")


def test_offline_and_refresh_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert isinstance(refresh(fake_hub.MODEL).exception, InputError)


def test_several_models_are_for_a_refresh(tmp_path: Path) -> None:
    inventory = tmp_path / "cluster.ini"
    inventory.write_text(INVENTORY)
    done = run(str(inventory), "--model", "a/b", "--model", "c/d")
    assert isinstance(done.exception, InputError) and "--refresh" in str(done.exception)


def test_the_month_of_a_models_repository_is_its_age(hub: fake_hub.FakeHub, tmp_path: Path) -> None:
    hub.listing_extra = {"createdAt": "2026-03-04T01:02:03.000Z"}
    refresh(fake_hub.MODEL)
    user_catalogue.load()
    assert catalogue.released(fake_hub.MODEL) == "2026-03"
    own(tmp_path, {fake_hub.MODEL: {**QWEN, "released": "2026-05"}, "team/old-2407": QWEN})
    user_catalogue.load()
    assert catalogue.released(fake_hub.MODEL) == "2026-05"
    assert catalogue.released("team/old-2407") == "2024-07"
