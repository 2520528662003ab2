"""Every place that handles sources of weights answers for every entry of the registry, and refuses others."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils import weight_sources
from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import (
    FOLDER,
    HUBS,
    ON_NODES,
    SOURCES,
    WeightSource,
)
from ansible_collections.headfirst.serving.plugins.plugin_utils import node_wheel
from headfirst.common.errors import InputError
from headfirst.control.checkpoints.hub_requests import Hub
from headfirst.control.deployment.running.role_vars.weights import hub_environment, hub_token
from headfirst.control.inventory.variables import role_options
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.node.weights.cli import main
from headfirst.node.weights.fetch.fetching import Fetching, FetchRequest
from headfirst.node.weights.fetch.source import Source

ID = {"path": "/srv/model", "demo": "headfirst-demo"}


def lacks(source: WeightSource) -> Iterator[str]:
    """What a source needs, and does not have."""
    if source.name not in typing.get_args(weight_sources.Name):
        yield "its name in Name"
    if source.is_hub and source.name not in typing.get_args(weight_sources.HubName):
        yield "its name in HubName"
    if not source.has(ID.get(source.name, "Qwen/Qwen3-32B")) or source.has("Qwen Qwen3"):
        yield "a form of its ids"
    module, _, name = source.client.partition(":")
    if source.client and not hasattr(_module(module), name):
        yield "the class of its client"
    for option, value in {"weights_source": source.client, "node_tools_extras": source.package}.items():
        if (source.name in role_options()[option]["spec"]["choices"]) != bool(value):
            yield f"its choice of {option}"
    if source.is_hub:
        hub = {"endpoint_variable", "token_variable", "title", "branch"}
        yield from sorted(name for name in hub if not getattr(source, name))
        if source.package and not (node_wheel.LOCKS["base"].parent / f"{source.name}.lock").is_file():
            yield "the lock of its client's packages"


def _module(name: str) -> object:
    place = f"headfirst.node.weights.fetch.{name}"
    return import_module(place) if find_spec(place) else None


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_has_all_that_it_needs(name: str) -> None:
    assert list(lacks(SOURCES[name])) == []


def test_what_an_entry_lacks_is_named() -> None:
    new: typing.Any = "s3"
    entry = replace(HUBS["modelscope"], name=new, client="s3_source:S3Source", token_variable="", branch="")
    assert list(lacks(entry)) == [
        "its name in Name",
        "its name in HubName",
        "the class of its client",
        "its choice of weights_source",
        "its choice of node_tools_extras",
        "branch",
        "token_variable",
        "the lock of its client's packages",
    ]


@pytest.mark.parametrize("name", SOURCES)
def test_the_controller_knows_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SOURCES[name]
    assert ServiceSettings.model_validate({"model_source": name}).model_source == name
    assert weight_sources.companion("/srv/draft", name) is FOLDER
    beside = weight_sources.companion("org/draft", name)
    assert beside is (source if source.is_hub else HUBS[weight_sources.DEFAULT_HUB])
    monkeypatch.setenv(source.token_variable or "NO_TOKEN", "t0ken")
    assert hub_token(name) == ("t0ken" if source.is_hub else "")
    if not source.is_hub:
        with pytest.raises(InputError, match="The hubs are huggingface and modelscope"):
            Hub.of(name, {})
        return
    mirror = {source.endpoint_variable: "https://mirror.example/", source.token_variable: "t0ken"}
    hub = Hub.of(name, mirror)
    assert (hub.endpoint, hub.token) == ("https://mirror.example", "t0ken")
    assert hub_environment(mirror) == {source.endpoint_variable: "https://mirror.example/"}
    assert "/org/model/" in source.listing.format(id="org/model", revision="r")
    assert source.file.format(id="org/model", revision="r", file="a.json").endswith("a.json")


@pytest.mark.parametrize("name", ON_NODES)
def test_its_client_is_a_source(name: str) -> None:
    module, _, name = ON_NODES[name].client.partition(":")
    client = getattr(_module(module), name)
    assert all(hasattr(client, method) for method in ("note", "list", "place", "pull"))
    assert typing.get_type_hints(client.list)["return"] is typing.get_type_hints(Source.list)["return"]
    client("org/model", "")


def test_a_source_that_no_class_handles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing here fetches from 'demo'") as raised:
        Fetching(FetchRequest("demo", "headfirst-demo"), tmp_path)
    assert raised.value.hint == "--from huggingface|modelscope|path"


def test_a_token_for_a_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("hf_x")
    token.chmod(0o600)
    command = ["fetch", "/srv/model", str(tmp_path / "model"), "--from", "path", "--token-file", str(token)]
    with pytest.raises(SystemExit) as raised:
        main(command)
    assert raised.value.code == 2
    assert "--token-file is for a hub" in capsys.readouterr().err
