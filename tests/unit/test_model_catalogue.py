"""The catalogue's numbers, recomputed from the dimensions that it gives."""

from __future__ import annotations

import pytest
from headfirst.model import catalogue
from headfirst.model.checkpoint import ELEMENT_BYTES
from headfirst.model.parameters import parameters_by_dtype

# One weight file more than the architecture needs: this model stores its tied head a second time.
TIED_HEAD_STORED = {"Qwen/Qwen3-0.6B"}


@pytest.mark.parametrize("id", catalogue.ids())
def test_parameters_follow_from_the_dimensions(id: str) -> None:
    model = catalogue.lookup(id)
    assert model is not None
    counted = parameters_by_dtype(model)
    assert counted is not None
    if id in TIED_HEAD_STORED:
        counted["BF16"] += model.vocab_size * model.hidden_size
    assert {name: count * ELEMENT_BYTES[name] for name, count in counted.items()} == model.bytes_by_dtype


@pytest.mark.parametrize("id", catalogue.ids())
def test_files_are_the_tensors_and_small_headers(id: str) -> None:
    model = catalogue.lookup(id)
    assert model is not None
    headers = model.total_bytes - sum(model.bytes_by_dtype.values())
    assert 0 <= headers < 20_000_000
    assert len({shard.name for shard in model.shards}) == len(model.shards)


def test_deepseek_r1_as_published() -> None:
    model = catalogue.lookup("deepseek-ai/DeepSeek-R1")
    assert model is not None
    assert model.fp8_bytes == 680_571_043_840
    assert model.total_bytes == 688_586_727_753
    assert len(model.shards) == 163
    assert model.shards[-1].name == "model-00163-of-000163.safetensors"
    assert model.scale_bytes == 166_161_984
    # "more than 1.3 TB" in BF16
    assert 1.368e12 < model.bf16_bytes < 1.370e12
    assert model.remote_code


def test_lookup_ignores_case_as_the_hubs_do() -> None:
    model = catalogue.lookup("qwen/qwen2-7b", revision="master", note="said")
    assert model is not None
    assert (model.id, model.revision, model.note) == ("qwen/qwen2-7b", "master", "said")


def test_unknown_model_is_none() -> None:
    assert catalogue.lookup("nobody/nothing") is None
