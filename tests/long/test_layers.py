"""Pipeline parallelism on two nodes: each keeps its own layers only, and the engine answers the same.

`deploy up` with pipeline_parallel=2, and then with tensor_parallel=2 on the same nodes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from headfirst.control import demo
from headfirst.control.deployment.lab_nodes import NODE_SHARE, share_dir
from layer_ordered import LAYERS, shard_name, write_layer_ordered
from readme_lab import INVENTORY, Service, bring_up, hello, on_node, own_lab

pytestmark = pytest.mark.lab
MODEL = "layer-ordered-demo"
SERVED = f"/var/lib/headfirst/models/{MODEL}-bf16"
SHARDS = [shard_name(number) for number in range(LAYERS + 2)]
ENDS = {SHARDS[0], SHARDS[-1]}
QUESTIONS = 12
EVERYTHING_BYTES = 13_219_721
"""Of the shards in BF16."""


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """As lab.ini on a subnet of its own, with the layer-ordered demo; its lab is removed in the end."""
    shared = share_dir() / MODEL
    shutil.rmtree(shared, ignore_errors=True)
    write_layer_ordered(shared)
    text = INVENTORY.read_text().replace("10.213.0.", "10.217.0.")
    assert "model_source=demo\n" in text
    source = f"model_source=path\nweights_shared=stage\nmodel={NODE_SHARE / MODEL}\n"
    path = tmp_path_factory.mktemp("inventory") / "lab-layers.ini"
    try:
        with own_lab(path, text.replace("model_source=demo\n", source)):
            yield path
    finally:
        shutil.rmtree(shared)


def up(inventory: Path, pipeline: int, tensor: int) -> Service:
    return bring_up(
        *("--extra-vars", f"pipeline_parallel={pipeline}", "--extra-vars", f"tensor_parallel={tensor}"),
        inventory=inventory,
    )


def shards(node: str, inventory: Path) -> dict[str, int]:
    """Bytes of the shards that a node serves."""
    lines = on_node(node, f"cd {SERVED} && stat --format '%n %s' *.safetensors", inventory).splitlines()
    return {name: int(size) for name, size in (line.split() for line in lines)}


def assert_answers(service: Service) -> None:
    """Greedily, those of the full copy."""
    for prompt, answer in list(demo.answers().items())[:QUESTIONS]:
        assert hello(service.api, service.api_key, service.model, prompt) == answer


def test_two_nodes_serve_their_own_layers_and_a_changed_division_brings_the_rest(inventory: Path) -> None:
    assert_answers(up(inventory, pipeline=2, tensor=1))
    first, second = (shards(node, inventory) for node in ("node1", "node2"))
    assert first.keys() == ENDS | set(SHARDS[1:4])
    assert second.keys() == ENDS | set(SHARDS[4:7])
    assert max(sum(first.values()), sum(second.values())) < 0.6 * EVERYTHING_BYTES
    assert up(inventory, pipeline=2, tensor=1).changed == 0

    assert_answers(up(inventory, pipeline=1, tensor=2))
    for node in ("node1", "node2"):
        assert shards(node, inventory).keys() == set(SHARDS)
