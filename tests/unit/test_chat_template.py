"""Whether a checkpoint has a chat template, by what its files are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_hub import MODEL, running
from headfirst.common.errors import HeadfirstError
from headfirst.control.checkpoints import hub_requests
from headfirst.control.checkpoints.chat_template import CONFIG, has_template
from headfirst.control.checkpoints.describe import describe
from model_files import CONFIG as MODEL_CONFIG
from model_files import INDEX, SHARDS, write

LLAMA = {"architectures": ["LlamaForCausalLM"]}
PLAIN = {CONFIG: {"tokenizer_class": "LlamaTokenizer"}}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        (PLAIN, False),
        ({CONFIG: {"chat_template": "{{ messages }}"}}, True),
        ({CONFIG: {"chat_template": [{"name": "default", "template": "{{ messages }}"}]}}, True),
        ({CONFIG: {"chat_template": ""}}, False),
        ({CONFIG: {"auto_map": {"AutoTokenizer": ["tokenization.Own", None]}}}, None),
        ({**PLAIN, "chat_template.jinja": {}}, True),
        ({**PLAIN, "chat_template.json": {}}, True),
        ({**PLAIN, "tekken.json": {}}, None),
    ],
)
def test_the_files_show_it(files: Mapping[str, Mapping[str, Any]], expected: bool | None) -> None:
    assert has_template(LLAMA, files, files.__getitem__) is expected


@pytest.mark.parametrize(
    ("architectures", "expected"),
    [
        (["DeepseekV32ForCausalLM"], None),
        (["KimiK25ForConditionalGeneration"], None),
        (["Qwen3ForCausalLM"], False),
        ("DeepseekV3ForCausalLM", False),
        (None, False),
    ],
)
def test_engines_have_the_chats_of_some_models_themselves(architectures: Any, expected: bool | None) -> None:
    """SGLang's entrypoints/openai/chat_encoding.py; `architectures` is whatever config.json has there."""
    assert has_template({"architectures": architectures}, PLAIN, PLAIN.__getitem__) is expected


TOKENIZERS = [({"chat_template": "{{ messages }}"}, True), ({}, False)]


@pytest.mark.parametrize(("tokenizer", "expected"), TOKENIZERS)
def test_a_folder(tmp_path: Path, tokenizer: Mapping[str, Any], expected: bool) -> None:
    folder = write(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps({**MODEL_CONFIG, **LLAMA}), encoding="utf-8")
    (folder / CONFIG).write_text(json.dumps(tokenizer), encoding="utf-8")
    assert describe(str(folder), "path").chat_template is expected
    (folder / CONFIG).unlink()
    assert describe(str(folder), "path").chat_template is None


@pytest.mark.parametrize(
    ("source", "variable"), [("huggingface", "HF_ENDPOINT"), ("modelscope", "MODELSCOPE_ENDPOINT")]
)
@pytest.mark.parametrize(("tokenizer", "expected"), TOKENIZERS)
def test_a_hub(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    variable: str,
    tokenizer: Mapping[str, Any],
    expected: bool,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(hub_requests, "_SILENT", set())
    with running(hub_files(json.dumps(tokenizer).encode())) as hub:
        assert describe(MODEL, source, environment={variable: hub.url}).chat_template is expected


@pytest.mark.parametrize("content", [b"[1]", b"{", b"{" + b" " * (70 << 20)])
def test_a_tokenizer_config_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """What a hub sends is data: another type, damaged, too large."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(hub_requests, "_SILENT", set())
    with running(hub_files(content)) as hub, pytest.raises(HeadfirstError) as error:
        describe(MODEL, "huggingface", environment={"HF_ENDPOINT": hub.url})
    assert MODEL in str(error.value.where or error.value.what)


def hub_files(tokenizer: bytes) -> dict[str, bytes]:
    return {
        "config.json": json.dumps({**MODEL_CONFIG, **LLAMA}).encode(),
        "model.safetensors.index.json": json.dumps(INDEX).encode(),
        CONFIG: tokenizer,
        **SHARDS,
    }
