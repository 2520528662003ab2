"""Which shards each member needs when the layers are divided, and the index of what it has."""

from __future__ import annotations

import json

import pytest
from headfirst.common.convertible import read_format
from headfirst.common.errors import InputError
from headfirst.control.demo import checkpoint_dir
from headfirst.node.weights.convert.recipe import scale_homes
from headfirst.node.weights.layers import partial_index, read_layers, shards_by_member, with_scales

BLOCKS = read_format({"quant_method": "fp8", "weight_block_size": [128, 128]})
TWO: list[range | None] = [range(2), range(2, 4)]


def index(*shards: str, prefix: str = "model.") -> dict[str, str]:
    """`0 1` is a shard with a tensor of each of these layers; other words are whole names."""
    return {
        (f"{prefix}layers.{word}.mlp.w{at}" if word.isdigit() else word): f"{at}.safetensors"
        for at, shard in enumerate(shards)
        for word in shard.split()
    }


def members(weight_map: dict[str, str], ranges: list[range | None], layers: int = 4) -> list[set[int]]:
    """Members by shard, in the order of `index`."""
    needed = shards_by_member(weight_map, ranges, layers)
    return [set(needed[f"{at}.safetensors"]) for at in range(len(needed))]


@pytest.mark.parametrize("prefix", ["model.", "language_model.model.", "model.language_model.", ""])
def test_a_shard_goes_where_one_of_its_layers_is_served(prefix: str) -> None:
    assert members(index("0", "1 2", "3", "3 2", prefix=prefix), TWO) == [{0}, {0, 1}, {1}, {1}]


@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
        "model.visual.blocks.3.attn.qkv.weight",
        "vision_tower.encoder.layers.3.weight",
        "mtp.layers.0.mlp.weight",
        "audio_tower.layers.1.weight",
    ],
)
def test_what_is_in_no_layer_goes_everywhere(name: str) -> None:
    assert members(index("0 1", "2 3", name), TWO) == [{0}, {1}, {0, 1}]


@pytest.mark.parametrize(
    ("weight_map", "ranges", "expected"),
    [
        # Layers of multi-token prediction go with the last one.
        (
            index("0 1", "2", "3", "4", "5"),
            [range(1), range(1, 3), range(3, 4)],
            [{0, 1}, {1}, {2}, {2}, {2}],
        ),
        (index("0", "3"), [None, range(4)], [{0, 1}] * 2),
        (index("0 1", "2 3"), [None, range(2, 4)], [{0}, {0, 1}]),
        (index("0", "1", "2", "3"), [*TWO, *TWO], [{0, 2}, {0, 2}, {1, 3}, {1, 3}]),  # replicas share layers
    ],
)
def test_members_of_each_shard(
    weight_map: dict[str, str], ranges: list[range | None], expected: list[set[int]]
) -> None:
    assert members(weight_map, ranges) == expected


@pytest.mark.parametrize(
    "weight_map",
    [
        index("0", "1", "2"),  # a layer is missing: these names are not the plan's layers
        index("transformer.h.0.w transformer.h.1.w", "transformer.h.2.w transformer.h.3.w"),
        index("0 1", "2 3") | {"language_model.model.layers.0.w": "0.safetensors"},  # two models
    ],
)
def test_layers_that_are_not_understood_go_everywhere(weight_map: dict[str, str]) -> None:
    assert set(shards_by_member(weight_map, TWO, 4).values()) == {frozenset({0, 1})}


def test_a_layer_that_no_member_serves_is_refused() -> None:
    with pytest.raises(InputError, match="layer 2 of 5 is served by no node"):
        shards_by_member(index("0 1 2 3 4"), [range(2), range(3, 5)], 5)


def test_scales_in_another_shard_are_brought_for_the_conversion() -> None:
    weight_map = {
        "model.layers.0.a.weight": "0.safetensors",
        "model.layers.0.a.weight_scale_inv": "0.safetensors",
        "model.layers.1.a.weight": "0.safetensors",  # the first member has this layer by chance
        "model.layers.1.a.weight_scale_inv": "1.safetensors",
        "model.layers.1.b.weight": "1.safetensors",
        "model.layers.1.b.weight_scale_inv": "2.safetensors",
    }
    needed = shards_by_member(weight_map, [range(1), range(1, 2)], 2)
    assert [set(needed[shard]) for shard in sorted(needed)] == [{0, 1}, {1}, {1}]
    sources = with_scales(needed, scale_homes(weight_map, BLOCKS))
    # 1 is not converted on the first member, so that needs no 2.
    assert [set(sources[shard]) for shard in sorted(sources)] == [{0, 1}, {0, 1}, {1}]


def test_the_demo_checkpoint_is_divided() -> None:
    document = json.loads((checkpoint_dir() / "model.safetensors.index.json").read_text())
    needed = shards_by_member(document["weight_map"], [range(3), range(3, 6)], 6)
    by_number = {int(shard.split("-")[1]): set(who) for shard, who in needed.items()}
    # Embedding in 1, head in 6, the last scales in 7.
    assert by_number == {1: {0, 1}, 2: {0, 1}, 3: {0}, 4: {0, 1}, 5: {1}, 6: {0, 1}, 7: {1}}


def test_the_index_names_what_is_there() -> None:
    weight_map = {"b": "1.safetensors", "a": "1.safetensors", "c": "2.safetensors"}
    assert partial_index(weight_map, {"1.safetensors"}, {"a": 3, "b": 4}) == {
        "metadata": {"total_size": 7},
        "weight_map": {"a": "1.safetensors", "b": "1.safetensors"},
    }


def test_layers_as_text() -> None:
    assert read_layers("0-30") == range(31)
    assert read_layers("60-60") == range(60, 61)
    assert read_layers("") is None
    for text in ("30", "3-1", "-1-3", "0-30,40-50", "0-99999999", "0-3\n", "٣-٤"):
        with pytest.raises(InputError):
            read_layers(text)
