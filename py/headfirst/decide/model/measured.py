"""What the headers of a checkpoint's shards state of its size: bytes by dtype, and by part of the model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from headfirst.common.convertible import Format
from headfirst.common.safetensors_file import StoredTensor


class Part(Enum):
    """A group of tensors that pipeline stages and ranks hold in one way; the values are used in plans."""

    EMBEDDING = "embedding"
    VISION = "vision"  # towers of images and sound with their projectors: before the first layer
    ATTENTION = "attention"
    EXPERTS = "experts"  # the routed ones
    DENSE = "dense"  # everything else of a layer
    HEAD = "head"
    NEXTN = "nextn"  # multi-token prediction: loaded for speculative decoding only


LAYER_PARTS = (Part.ATTENTION, Part.EXPERTS, Part.DENSE)

# In this order: names of the tensors in Hugging Face's model files, and in the models' own.
_PARTS = (
    (
        Part.VISION,
        r"(^|\.)(visual|vision\w*|vit|audio\w*|multi_modal_projector|mm_projector|patch_merge\w*)\.",
    ),
    (Part.NEXTN, r"(^|\.)mtp\w*\."),
    (Part.EXPERTS, r"\.experts\."),
    (Part.ATTENTION, r"\.(self_attn|attn|attention|self_attention|linear_attn|cross_attn|mixer)\."),
    (Part.EMBEDDING, r"(^|\.)(embed|embed_tokens|word_embeddings|wte|tok_embeddings|embedding)\."),
    (Part.HEAD, r"(^|\.)(lm_head|output_layer|score|classifier)\.|^(output|head)\."),
)
_MATCHERS = tuple((part, re.compile(pattern)) for part, pattern in _PARTS)
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
# A layer of multi-token prediction: mtp.layers.0. (Qwen3-Next, MiMo-V2), mtp.0. (DeepSeek-V4).
_DRAFT = re.compile(r"(?:^|\.)mtp\w*\.(?:layers\.)?(\d+)\.")


@dataclass(frozen=True)
class Measured:
    """Bytes of all tensors of a checkpoint; `bf16_by_part` after a conversion, empty where there is none.

    `draft_layers` are those of multi-token prediction by the tensors' names.
    """

    by_dtype: dict[str, int]
    by_part: dict[str, int]
    bf16_by_part: dict[str, int]
    draft_layers: int = 0


def part_of(name: str, layers: int) -> Part:
    """The part to which the tensor `name` belongs in a model of `layers` layers.

    Layers after the last one are those of multi-token prediction (DeepSeek-V3, GLM-4.5).
    """
    for part, pattern in _MATCHERS[:2]:
        if pattern.search(name):
            return part
    number = _LAYER.search(name)
    if number and int(number[1]) >= layers:
        return Part.NEXTN
    return next((part for part, pattern in _MATCHERS[2:] if pattern.search(name)), Part.DENSE)


def measure(shards: Iterable[Sequence[StoredTensor]], layers: int, conversion: Format | None) -> Measured:
    """The sums over the tensors of all shards."""
    by_dtype: Counter[str] = Counter()
    by_part: Counter[str] = Counter()
    bf16: Counter[str] = Counter()
    drafts: set[str] = set()
    for tensor in (tensor for shard in shards for tensor in shard):
        size = tensor.end - tensor.start
        by_dtype[tensor.dtype] += size
        part = part_of(tensor.name, layers).value
        by_part[part] += size
        if number := _DRAFT.search(tensor.name):
            drafts.add(number[1])
        if conversion:
            bf16[part] += conversion.result_bytes(tensor)
    return Measured(dict(by_dtype), dict(by_part), dict(bf16), len(drafts))
