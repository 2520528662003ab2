"""A model of a hub in a bundle: fetched by the node tools themselves, in an environment of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_hub import COMMIT, MODEL, running
from headfirst.common.errors import NotReadyError
from headfirst.control import demo
from headfirst.control.bundle import weights


def quiet(what: str, done: int, total: int) -> None:
    """Progress that nobody reads."""


@pytest.fixture
def files() -> dict[str, bytes]:
    with demo.checkpoint(demo.CHAT_MODEL) as folder:
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_model_is_fetched_once(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(files) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        found = []
        for _ in range(2):
            folder = weights.fetched(
                tmp_path / "models", tmp_path / "tools", "huggingface", MODEL, COMMIT, quiet
            )
            found.append(weights.of_folder(folder, "models/team/model"))
        assert all(hub.order.count(name) <= 1 for name in files)
        with pytest.raises(NotReadyError, match="Fetching team/none failed"):
            weights.fetched(tmp_path / "models", tmp_path / "tools", "huggingface", "team/none", "", quiet)
    assert found[0] == found[1]
    held = {path.removeprefix("models/team/model/"): item for path, item in found[0].items()}
    assert {name: b"".join(held[name].chunks()) for name in files} == files


def test_an_adapter_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = json.dumps({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    files = {
        "adapter_config.json": b'{"r": 8, "peft_type": "LORA"}',
        "adapter_model.safetensors": len(header).to_bytes(8, "little") + header + bytes(4),
    }
    with running(files) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        folder = weights.fetched(tmp_path / "models", tmp_path / "tools", "huggingface", MODEL, "", quiet)
    held = weights.of_folder(folder, "models/adapters/team/model")
    for name, data in files.items():
        assert b"".join(held[f"models/adapters/team/model/{name}"].chunks()) == data
