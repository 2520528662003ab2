"""Sizes of the catalogue's models whose architecture decide/model/parameters.py does not know.

Of each entry of decide/model/catalogue whose `total_bytes_are` names transformers 5.19 it writes `stored`
(part of the model -> safetensors dtype -> bytes), and of quantised models `bf16` (part -> bytes in BF16).
Arguments are ids, where not all are meant; `--check` compares. It builds the model from the entry's config
without weights (PyTorch's device "meta") and counts its tensors.

Needs the headfirst package, torch and transformers 5.19. Layers of multi-token prediction, which transformers
leaves out, follow vLLM 0.33's files *_mtp.py: a decoder layer, projections from twice the width, norms.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from headfirst.common import quantization
from headfirst.common.convertible import quantization_of
from headfirst.common.quantization import Scheme, Stored
from headfirst.common.safetensors_file import DTYPE_BITS
from headfirst.decide.model import catalogue
from headfirst.decide.model.measured import Part, part_of
from transformers import AutoConfig, AutoModel

FOLDER = Path(__file__).parents[1] / "py/headfirst/decide/model/catalogue"
# DeepSeek-V4's experts: codes of two weights in an I8, with the scales of OCP's MXFP4.
PACKED_EXPERTS = Scheme("mxfp4", "float", (Stored("I8", 4, "weight"), Stored("F8_E8M0", 8, "scale")), 32)
# What every publisher leaves as it is beside what its quantization_config lists.
PLAIN = (
    *("*lm_head", "*embed_tokens*", "*embeddings", "*visual*", "*vision*", "*audio*", "*projector*"),
    *("*.gate", "*router*", "*shared_expert_gate", "*weights_proj", "*in_proj_a", "*in_proj_b", "*conv1d"),
    *("*eh_proj", "*mtp.fc"),
)


@dataclass(frozen=True)
class Extra:
    """Layers of multi-token prediction: the key with their number, and the layers that they resemble.

    `like` are conditions on names of tensors: of each, the last layer that has one. `copies` is how many of
    embedding and head are stored once more.
    """

    key: str
    like: tuple[tuple[str, str], ...] = (("", ""),)  # (a name of the layer's tensors, which of them counts)
    copies: int = 0


PROJECTIONS, NORMS = 2, 3  # of such a layer: matrices of width x width, and vectors
FULL = (("self_attn", ""),)
EXTRA = {
    "deepseek_v3": Extra("num_nextn_predict_layers", copies=2),
    "deepseek_v32": Extra("num_nextn_predict_layers", copies=2),
    "glm_moe_dsa": Extra("num_nextn_predict_layers", (("indexer", ""),)),
    "glm4_moe": Extra("num_nextn_predict_layers", copies=2),
    "glm4_moe_lite": Extra("num_nextn_predict_layers", copies=2),
    "glm4v_moe_text": Extra("num_nextn_predict_layers", copies=2),
    "qwen3_next": Extra("num_nextn_predict_layers", FULL),
    "qwen3_5_text": Extra("mtp_num_hidden_layers", FULL),
    "qwen3_5_moe_text": Extra("mtp_num_hidden_layers", FULL),
    "deepseek_v4": Extra("num_nextn_predict_layers", (("layers.0.", ""),)),
    "nemotron_h": Extra("num_nextn_predict_layers", (("q_proj", ""), ("experts", ""))),
    "hy_v3": Extra("num_nextn_predict_layers"),
    "step3p5": Extra("num_nextn_predict_layers", (("layers.0.", ""),), copies=1),
    "mimo_v2_flash": Extra(
        "num_nextn_predict_layers", (("layers.1.self_attn", "self_attn"), ("layers.0.mlp", "mlp"))
    ),
}


@dataclass(frozen=True)
class Weight:
    """A tensor: `matrices` of `rows` x `columns`; `linear`: a quantisation may pack it."""

    name: str
    rows: int
    columns: int
    matrices: int
    linear: bool
    part: str
    fp32: bool = False


def configuration(config: dict[str, Any]) -> Any:
    """The transformers configuration of a config.json, without quantisation and code of the model."""
    drop = ("quantization_config", "auto_map")
    plain = {key: value for key, value in config.items() if key not in drop}
    for key, value in plain.items():
        if isinstance(value, dict):
            plain[key] = {name: part for name, part in value.items() if name not in drop}
    kind = plain.get("model_type") or model_class(config).config_class.model_type
    kind = {"kimi_k2": "deepseek_v3"}.get(kind, kind)
    return AutoConfig.for_model(kind, **{key: value for key, value in plain.items() if key != "model_type"})


def model_class(config: dict[str, Any]) -> Any:
    """The class of transformers for the first architecture; None where it has none of this name."""
    name = config["architectures"][0]
    return getattr(transformers, CLASSES.get(name, name), None)


@cache
def weights(text: str, unstated: int) -> list[Weight]:
    """All tensors of the model with this config.json, those of multi-token prediction too.

    `unstated`: layers of multi-token prediction of a config.json without their number.
    """
    config = json.loads(text)
    settings = configuration(config)
    torch.set_default_dtype(torch.bfloat16)
    kind = model_class(config)
    with torch.device("meta"):
        model = kind(settings) if kind else AutoModel.from_config(settings)
    if hasattr(model, "tie_weights"):
        model.tie_weights()
    text = settings.get_text_config()
    layers = text.num_hidden_layers
    linear = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Linear)}
    counted = [
        weight(tensor_name, tensor, id(tensor) in linear, layers)
        for tensor_name, tensor in (*model.named_parameters(), *persistent(model))
    ]
    numbers = {**config, **config.get("text_config", {})}
    extra = EXTRA.get(text.model_type)
    count = (numbers.get(extra.key, unstated) or 0) if extra else 0
    return [*counted, *(next_token(counted, extra, count, text) if extra and count else ())]


# Names that the hub has and transformers calls differently.
CLASSES = {
    "KimiK25ForConditionalGeneration": "Kimi_K25ForConditionalGeneration",
    "MiniMaxM3ForCausalLM": "MiniMaxM3SparseForConditionalGeneration",
    "MistralLarge3ForCausalLM": "DeepseekV3ForCausalLM",
}


def persistent(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The buffers that a checkpoint has: correction biases of routers, tables of hashes."""
    stored = model.state_dict().keys()
    return ((name, buffer) for name, buffer in model.named_buffers() if name in stored)


def weight(name: str, tensor: torch.Tensor, linear: bool, layers: int) -> Weight:
    """Describe a tensor; experts that transformers keeps as one are as many matrices."""
    shape = tuple(tensor.shape)
    experts = len(shape) == 3 and ".experts." in name
    matrices = shape[0] if experts else 1
    rows, columns = (shape[-2], shape[-1]) if len(shape) == 2 or experts else (1, tensor.numel())
    embedding = re.search(r"(^|\.)embeddings\.", name) is not None
    part = Part.EMBEDDING if embedding and "vis" not in name else part_of(name, layers)
    fp32 = tensor.dtype == torch.float32 or "correction_bias" in name
    return Weight(name, rows, columns, matrices, linear or experts, part.value, fp32)


def next_token(model: list[Weight], extra: Extra, count: int, text: Any) -> Iterator[Weight]:
    """The tensors of `count` layers of multi-token prediction."""
    width, vocabulary = text.hidden_size, text.vocab_size
    for _ in range(count):
        for condition, kept in extra.like:
            layer = last_layer(model, condition)
            for item in model:
                if f"layers.{layer}." in item.name and kept in item.name and item.part != Part.VISION.value:
                    name = "mtp." + item.name[item.name.index("layers.") :]
                    yield replace(item, name=name, part="nextn")
        yield Weight("mtp.fc", width, PROJECTIONS * width, 1, True, "nextn")
        yield Weight("mtp.norm", 1, NORMS * width, 1, False, "nextn")
        if extra.copies:
            yield Weight("mtp.head", vocabulary, extra.copies * width, 1, False, "nextn")


def last_layer(model: list[Weight], condition: str) -> int:
    """The last layer with a tensor whose name has `condition`."""
    numbers = [
        int(match[1])
        for item in model
        if condition in item.name and item.part != Part.VISION.value
        if (match := re.search(r"(?:^|\.)layers\.(\d+)\.", item.name))
    ]
    return max(numbers)


def module(name: str) -> str:
    """The module of a tensor as publishers list it; of routed experts the group."""
    head, experts, _ = name.partition(".experts.")
    return f"{head}.experts" if experts else name.removesuffix(".weight")


def listed(name: str, patterns: Iterable[str]) -> bool:
    """Whether a publisher's list names the module, whatever stands before `layers`."""
    return any(matches(name, pattern) for pattern in patterns)


@cache
def matches(name: str, pattern: str) -> bool:
    """One pattern: a regular expression (re:), or a name with wildcards, which may stop at a parent."""
    if pattern.startswith("re:"):
        return re.match(pattern[3:], name) is not None
    pattern = re.sub(r"(?<!shared_)experts\..*$", "experts", block(pattern))
    return any(
        fnmatchcase(form, pattern) or fnmatchcase(form, f"{pattern}.*") for form in (name, block(name))
    )


@cache
def block(name: str) -> str:
    """The name from `layers` on, with one name for what publishers and transformers call differently."""
    name = re.sub(r"^(?!mtp).*?(?=layers\.)", "", name)
    name = re.sub(r"^(layers\.[^.]+)\.share_expert\b", r"\1.mlp.shared_experts", name)
    name = re.sub(r"\b(mixer|block_sparse_moe|ffn|feed_forward|moe)\b", "mlp", name)
    return re.sub(r"\bself_attn\b", "attn", name)


def layout(config: dict[str, Any], described: Any, item: Weight) -> tuple[Scheme, Any, Any] | None:
    """Scheme, block and group size of a tensor in the checkpoint; None for a plain one."""
    stated, name = quantization_of(config), module(item.name)
    if not (stated and item.linear) or (
        listed(name, PLAIN) and name not in stated.get("quantized_layers", ())
    ):
        return None
    experts = ".experts." in item.name
    packed = (PACKED_EXPERTS, None, None) if config.get("expert_dtype") == "fp4" and experts else None
    kind, mixed = described.quantization, stated.get("quantized_layers") or {}
    over_fp8 = mixed and kind.method == "fp8"  # ModelOpt's own lists; what they leave is FP8 as it was
    ignored = [] if over_fp8 else [pattern for key in LISTS for pattern in stated.get(key) or ()]
    if item.part == Part.NEXTN.value:
        if any(after_last(pattern, described.layers) for pattern in ignored):
            return None
    elif listed(name, ignored):
        return None
    else:
        for pattern, algorithm in mixed.items():
            if listed(name, [pattern]):
                word = algorithm["quant_algo"].lower()
                return quantization.find(quantization.named(word)), None, algorithm.get("group_size")
    if packed:
        return packed
    if mixed and not over_fp8:
        return None
    scheme = quantization.find(kind.scheme, kind.method) or quantization.find(kind.method)  # of a mixture
    if scheme is None:
        raise ValueError(f"{described.id}: no scheme of {kind}")
    by_row = kind.conversion is not None and "row" in kind.conversion.layouts
    return scheme, kind.block or ((1, item.columns) if by_row else None), kind.group_size


LISTS = ("ignore", "exclude_modules", "modules_to_not_convert")


def after_last(pattern: str, layers: int) -> bool:
    """Whether a publisher's list leaves the layers of multi-token prediction, which follow the last one."""
    number = re.search(r"layers\.(\d+)\*?$", pattern)
    whole = re.fullmatch(r"mtp(\.layers\.\d+)?\.?\*", pattern)
    return whole is not None or (number is not None and int(number[1]) >= layers)


def sizes(id: str) -> dict[str, Any]:
    """`stored` and `bf16` of an entry."""
    entry = catalogue.resolved(id)
    config = entry["config"]
    described = catalogue.lookup(id)
    stored: dict[str, Counter[str]] = {}
    plain: Counter[str] = Counter()
    kept = {"float16": "F16", "float32": "F32"}.get(
        str(config.get("torch_dtype") or config.get("dtype")), "BF16"
    )
    unstated = int("multi-token prediction" in entry["weights"]["total_bytes_are"])  # Qwen3-Next
    for item in weights(json.dumps(config), unstated):
        elements = item.rows * item.columns * item.matrices
        by_dtype = stored.setdefault(item.part, Counter())
        plain[item.part] += elements * (4 if item.fp32 else 2)
        whole = item.part in entry["weights"].get("plain_parts", ())
        if not whole and (packing := layout(config, described, item)):
            scheme, block, group = packing
            for dtype, size in scheme.stored_bytes(item.rows, item.columns, block, group).items():
                by_dtype[dtype] += size * item.matrices
        else:
            name = "F32" if item.fp32 else kept
            by_dtype[name] += elements * DTYPE_BITS[name] // 8
    order = [part.value for part in Part if part.value in stored]
    result: dict[str, Any] = {"stored": {part: dict(stored[part]) for part in order}}
    if quantization_of(config):
        result["bf16"] = {part: plain[part] for part in order}
    return result


def main() -> int:
    """Write or compare all entries, or those whose ids are arguments."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    stale = []
    for file in sorted(FOLDER.glob("*.json")):
        lines = file.read_text(encoding="utf-8").splitlines()
        id = ""
        for at, line in enumerate(lines):
            if named := re.match(r' "(.+)": \{$', line):
                id = named[1]
            if not line.startswith('  "weights": ') or "transformers 5.19" not in line:
                continue
            if arguments and id not in arguments:
                continue
            entry = json.loads(line.removeprefix('  "weights": ').rstrip().removesuffix(","))
            entry = {key: value for key, value in entry.items() if key not in ("stored", "bf16")} | sizes(id)
            comma = "," if line.rstrip().endswith(",") else ""
            new = f'  "weights": {json.dumps(entry)}{comma}'
            if new != line:
                stale.append(id)
                lines[at] = new
        if "--check" not in sys.argv:
            file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(stale))
    return int("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
