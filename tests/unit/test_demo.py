"""The demo checkpoint in the package: complete, small, and stored the way DeepSeek-V3 is."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from headfirst.control.demo import answers, checkpoint_dir
from headfirst.node.weights.convert.convert_folder import convert

FOLDER = checkpoint_dir()
WIDTH = {"F8_E4M3": 1, "BF16": 2, "F32": 4}
RANKS = (2, 3, 4, 6, 8)


@dataclass(frozen=True)
class Stored:
    """One tensor's entry in a safetensors header."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    size: int


def read_json(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return content


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Return a shard's header and the bytes of data that follow it."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length)), path.stat().st_size - 8 - length


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return read_json("config.json")


@pytest.fixture(scope="module")
def tensors() -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for path in sorted(FOLDER.glob("*.safetensors")):
        header, data = read_header(path)
        assert header.pop("__metadata__") == {"format": "pt"}
        entries = {
            name: Stored(
                path.name,
                entry["dtype"],
                tuple(entry["shape"]),
                entry["data_offsets"][1] - entry["data_offsets"][0],
            )
            for name, entry in header.items()
        }
        assert sum(entry.size for entry in entries.values()) == data, f"{path.name} is truncated"
        found |= entries
    return found


def is_fp8(name: str) -> bool:
    return name.endswith(("_proj.weight", "_proj_with_mqa.weight"))


def test_index_names_every_tensor_where_it_lies(tensors: dict[str, Stored]) -> None:
    index = read_json("model.safetensors.index.json")
    assert index["weight_map"] == {name: stored.file for name, stored in tensors.items()}
    assert index["metadata"]["total_size"] == sum(stored.size for stored in tensors.values())
    assert len(set(index["weight_map"].values())) >= 3
    # It is small enough for the repository.
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 8_000_000


def test_tensors_are_as_in_the_real_model(tensors: dict[str, Stored]) -> None:
    for name, stored in tensors.items():
        assert stored.size == prod(stored.shape) * WIDTH[stored.dtype], name
        if name.endswith("e_score_correction_bias"):
            assert stored.dtype == "F32", name
        elif not is_fp8(name) and not name.endswith("_scale_inv"):
            assert stored.dtype == "BF16", name
    # A scale lies in another shard than its weight, and a dimension is no multiple of the block.
    assert any(tensors[name].file != tensors[f"{name}_scale_inv"].file for name in tensors if is_fp8(name))
    rows = tensors["model.layers.0.self_attn.kv_a_proj_with_mqa.weight"].shape[0]
    assert rows > 128 and rows % 128


def test_linear_layers_are_fp8_with_a_scale_per_block(
    tensors: dict[str, Stored], config: dict[str, Any]
) -> None:
    rows, columns = config["quantization_config"]["weight_block_size"]
    linear = [name for name in tensors if is_fp8(name)]
    per_layer = config["num_hidden_layers"] * 5
    experts = (config["num_hidden_layers"] - 1) * (config["n_routed_experts"] + 1)
    assert len(linear) == per_layer + 3 * (experts + 1)
    for name in linear:
        weight, scale = tensors[name], tensors[f"{name}_scale_inv"]
        assert weight.dtype == "F8_E4M3", name
        assert scale.dtype == "F32", name
        assert scale.shape == (-(-weight.shape[0] // rows), -(-weight.shape[1] // columns)), name


def test_config_is_that_of_a_deepseek_v3(config: dict[str, Any], tensors: dict[str, Stored]) -> None:
    assert config["architectures"] == ["DeepseekV3ForCausalLM"]
    assert config["quantization_config"] == {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
    }
    assert (config["scoring_func"], config["topk_method"]) == ("sigmoid", "noaux_tc")
    assert config["rope_scaling"]["type"] == "yarn"
    assert tensors["lm_head.weight"].shape == (config["vocab_size"], config["hidden_size"])
    layers = {int(name.split(".")[2]) for name in tensors if name.startswith("model.layers.")}
    assert layers == set(range(config["num_hidden_layers"]))
    routed = [name for name in tensors if name.endswith(".mlp.gate.weight")]
    assert len(routed) == config["num_hidden_layers"] - config["first_k_dense_replace"]


@pytest.mark.parametrize("ranks", RANKS)
def test_divides_over_ranks(config: dict[str, Any], ranks: int) -> None:
    for key in ("num_attention_heads", "intermediate_size", "moe_intermediate_size", "vocab_size"):
        assert config[key] % ranks == 0, key


def test_generation_is_greedy_and_ends() -> None:
    generation, tokenizer = read_json("generation_config.json"), read_json("tokenizer_config.json")
    special = {token["content"]: token["id"] for token in read_json("tokenizer.json")["added_tokens"]}
    assert generation["temperature"] == 0
    assert special[tokenizer["eos_token"]] == generation["eos_token_id"]
    assert special[tokenizer["bos_token"]] == generation["bos_token_id"]


def test_chat_template_lays_turns_out_as_deepseek_does() -> None:
    jinja2 = pytest.importorskip("jinja2")
    tokenizer = read_json("tokenizer_config.json")
    template = jinja2.Environment(autoescape=False).from_string(tokenizer["chat_template"])
    messages = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Q1"},
        {"role": "assistant", "content": "A1"},
        {"role": "user", "content": "Q2"},
    ]
    text = template.render(messages=messages, bos_token="<b>", eos_token="<e>", add_generation_prompt=True)
    assert text == "<b>S<｜User｜>Q1<｜Assistant｜>A1<e><｜User｜>Q2<｜Assistant｜>"


def test_answers_cover_what_a_newcomer_asks() -> None:
    known = answers()
    for prompt in (
        "hello",
        "Who are you?",
        "What is Headfirst?",
        "What is tensor parallel?",
        "你好",
        "你是谁？",
    ):
        assert known[prompt]
    assert all(isinstance(answer, str) and answer for answer in known.values())


def read_raw(folder: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Return {name: (dtype, shape, bytes)} of every tensor in the folder's shards."""
    found: dict[str, tuple[str, tuple[int, ...], bytes]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        header, size = read_header(path)
        data = path.read_bytes()[-size:]
        for name, entry in header.items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                found[name] = (entry["dtype"], tuple(entry["shape"]), data[start:end])
    return found


def e4m3_values() -> npt.NDArray[np.float32]:
    """Return the value of each of the 256 codes: sign, four bits of exponent (bias 7), three of fraction."""
    codes = np.arange(256)
    sign, exponent, fraction = np.where(codes & 128, -1.0, 1.0), codes >> 3 & 15, codes & 7
    normal, small = (1 + fraction / 8) * 2.0 ** (exponent - 7), fraction / 8 * 2.0**-6
    return (sign * np.where(exponent == 0, small, normal)).astype(np.float32)


def test_the_converter_gives_what_the_formula_gives(tmp_path: Path) -> None:
    convert(FOLDER, tmp_path / "bf16", threads=1)
    before, after = read_raw(FOLDER), read_raw(tmp_path / "bf16")
    assert set(after) == {name for name in before if not name.endswith("_scale_inv")}
    for name, (dtype, shape, data) in after.items():
        if not is_fp8(name):
            assert (dtype, shape, data) == before[name], name
            continue
        codes = np.frombuffer(before[name][2], np.uint8).reshape(shape)
        _, blocks, scale = before[f"{name}_scale_inv"]
        scales = np.frombuffer(scale, np.float32).reshape(blocks).repeat(128, 0).repeat(128, 1)
        bits = (e4m3_values()[codes] * scales[: shape[0], : shape[1]]).view(np.uint32)
        rounded = (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)  # to nearest, ties to even
        assert (dtype, data) == ("BF16", rounded.tobytes()), name
