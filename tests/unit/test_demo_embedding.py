"""The embedding demo: a checkpoint as on the hub, the same on every machine, with a name of its own."""

from __future__ import annotations

import hashlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import ACCEPTANCE_MODEL
from headfirst.common.errors import InputError
from headfirst.control import demo
from headfirst.control.checkpoints.describe import describe
from headfirst.control.demo import acceptance
from headfirst.control.demo.embedding import CONFIG
from headfirst.control.deployment import lab_nodes
from headfirst.control.inventory.inventory import load
from safetensors import safe_open

INVENTORY = "[head]\nnode1 ansible_host=192.0.2.11\n[all:vars]\nmodel_source=demo\nengine_device=cpu\n"


def test_it_is_read_as_a_checkpoint() -> None:
    with demo.checkpoint(demo.EMBEDDING_MODEL) as folder:
        described = describe(demo.EMBEDDING_MODEL, "path", folder=folder)
        with safe_open(folder / "model.safetensors", framework="np") as stored:
            total = sum(int(np.prod(stored.get_slice(name).get_shape())) for name in stored.keys())  # noqa: SIM118
    assert described.architecture == "Qwen3ForCausalLM"
    assert described.total_bytes > 2 * total > 400_000
    assert not folder.exists()


def test_weights_have_the_spread_that_keeps_sums_at_one() -> None:
    with (
        demo.checkpoint(demo.EMBEDDING_MODEL) as folder,
        safe_open(folder / "model.safetensors", framework="np") as stored,
    ):
        rows = stored.get_tensor("layers.0.mlp.down_proj.weight")
        norm = stored.get_tensor("norm.weight")
    assert (rows.dtype, rows.shape) == (
        ml_dtypes.bfloat16,
        (CONFIG["hidden_size"], CONFIG["intermediate_size"]),
    )
    assert abs(rows.astype(np.float32).var() * rows.shape[1] - 1) < 0.05
    assert (norm == 1).all()


def test_it_is_the_same_everywhere() -> None:
    with demo.checkpoint(demo.EMBEDDING_MODEL) as folder:
        digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert digest.startswith("dd12f1b309dbffd3")


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_it_divides_over_ranks(ranks: int) -> None:
    for key in ("num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size"):
        assert CONFIG[key] % ranks == 0, key


def test_the_acceptance_model_has_the_size_of_weights_that_it_has_not() -> None:
    with demo.checkpoint(ACCEPTANCE_MODEL) as folder:
        described = describe(ACCEPTANCE_MODEL, "path", folder=folder)
        on_disk = 512 * sum(path.stat().st_blocks for path in folder.iterdir())
    assert described.total_bytes > 1_100_000_000 > 1_000 * on_disk
    heads = acceptance.CONFIG["num_attention_heads"]
    assert [ranks for ranks in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if heads % ranks] == []


def test_the_share_gets_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_nodes, "share_dir", lambda: tmp_path)
    for model in demo.MODELS:
        lab_nodes.share_demo_checkpoint(model)
    folder = tmp_path / lab_nodes.shared_demo(demo.EMBEDDING_MODEL).relative_to(lab_nodes.NODE_SHARE)
    assert (folder / "1_Pooling" / "config.json").is_file()
    kept = (folder / "model.safetensors").stat()
    (folder / "config.json").write_text("{}")
    lab_nodes.share_demo_checkpoint(demo.EMBEDDING_MODEL)
    assert (folder / "config.json").read_text() != "{}"
    assert (folder / "model.safetensors").stat().st_mtime_ns == kept.st_mtime_ns


@pytest.mark.parametrize(
    ("line", "model"), [("", demo.CHAT_MODEL), (f"model={demo.EMBEDDING_MODEL}", demo.EMBEDDING_MODEL)]
)
def test_a_demo_model_is_chosen_by_its_name(tmp_path: Path, line: str, model: str) -> None:
    (tmp_path / "one.ini").write_text(f"{INVENTORY}{line}\n")
    assert load([tmp_path / "one.ini"]).services[0].model_id == model


def test_another_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.ini").write_text(f"{INVENTORY}model=org/model\n")
    with pytest.raises(InputError, match="model_source=demo has no model org/model"):
        load([tmp_path / "one.ini"])
