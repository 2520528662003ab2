"""A checkpoint, described: what the plan needs of a model before anything is downloaded.

Only types: model/config.py makes one from a model's config.json and its safetensors headers.
"""

from __future__ import annotations

from collections import Counter

from headfirst.decide.frozen import Frozen
from headfirst.decide.model.adapter import AdapterConfig
from headfirst.decide.model.caches import KvHeads, RecurrentState, SparseIndex
from headfirst.decide.model.drafting import Drafting
from headfirst.decide.model.layer_types import LayerType
from headfirst.decide.model.quantization import Quantization
from headfirst.decide.model.task import Task

# Architectures that generate text though their name ends as that of an encoder.
_GENERATING_MODELS = ("LMHeadModel", "ChatModel", "ChatGLMModel")


class Mla(Frozen):
    """Dimensions of multi-head latent attention (DeepSeek-V2 and later)."""

    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


class Moe(Frozen):
    """Mixture of experts: `experts` routed ones in every layer that is not one of `dense_layers`.

    `intermediate_size` is the width of one routed expert, `shared_intermediate_size` that of all shared ones
    of a layer together.
    """

    experts: int
    experts_per_token: int
    shared_experts: int
    intermediate_size: int
    shared_intermediate_size: int = 0
    dense_layers: tuple[int, ...] = ()

    @property
    def first_dense_layers(self) -> int:
        """How many layers at the front have no experts."""
        return next((at for at, layer in enumerate(self.dense_layers) if at != layer), len(self.dense_layers))


class Shard(Frozen):
    """One safetensors file; `bytes` is its size on disk, None where only its name is known."""

    name: str
    bytes: int | None


# Types of checkpoints that are not quantised, and bytes of a weight.
FLOATS = {"bf16": 2, "fp16": 2, "fp32": 4}


class Checkpoint(Frozen):
    """A model's architecture and sizes. All `*bytes` are plain byte counts.

    The dimensions are those of the language model; a vision tower appears in `vision` and `bytes_by_part`.
    """

    id: str
    revision: str | None
    architecture: str
    dtype: str  # fp8 | bf16 | fp16 | fp32 | another quantisation's own name, such as awq
    quantization: Quantization | None = None  # None also where the tensors are not what config.json states
    weight_block_size: tuple[int, int] | None
    hidden_size: int
    intermediate_size: int
    layers: int
    nextn_layers: int  # multi-token-prediction layers kept after the last layer
    attention_heads: int
    kv_heads: int
    head_dim: int
    attention_bias: bool = False
    qk_norm: bool = False  # config.json's use_qk_norm
    fused_qkv: bool = False  # MiMo-V2.5: queries, keys and values interleaved in as many parts as kv_heads
    vocab_size: int
    tied_embeddings: bool
    max_context: int
    short_context: int | None = None  # tokens without LongRoPE's factors; None: another rope
    layer_types: tuple[LayerType, ...]  # one a layer; without multi-token prediction
    shared_kv_layers: int = 0  # the last ones, which read the keys and values of earlier layers
    sliding_window: int | None = None  # tokens that a sliding or chunked layer keeps
    mla: Mla | None
    moe: Moe | None
    full_kv: KvHeads | None = None  # of layers that keep all tokens; None: kv_heads of head_dim
    window_kv: KvHeads | None = None  # of layers with a window; None: as those that keep all
    recurrent: RecurrentState | None = None
    index: SparseIndex | None = None
    compress_ratios: tuple[int, ...] = ()  # of DeepSeek-V4, one a layer
    vision: bool = False  # takes images, or sound
    vision_parameters: int = 0  # of the tower and its projector; 0 where their layout is not known
    vision_tower: tuple[int | None, int | None] | None = None  # its layers and width; None: not stated
    vision_heads: int | None = None  # its attention heads; None: not stated
    other_heads: tuple[int, ...] = ()  # attention heads of layers that do not have `attention_heads`
    adapters: tuple[AdapterConfig | None, ...] = ()  # LoRA adapters beside it; None: one that was not read
    drafting: Drafting | None = None  # it drafts tokens for another model; None: a model of its own
    draft: Checkpoint | None = None  # another checkpoint that drafts tokens for it
    chat_template: bool | None = None  # None: not known, or the engine has the model's own form of a chat
    sentence_transformers: bool = False  # modules.json: the model gives one vector a text
    external_class: bool = False  # a package of the user may have its model class
    remote_code: bool  # config.json's auto_map: the model brings Python files of its own
    total_bytes: int  # weight files on disk
    bytes_by_dtype: dict[str, int]  # safetensors dtype name -> bytes of tensors of that dtype
    bytes_by_part: dict[str, int] = {}  # value of measured.Part -> bytes of its tensors
    bf16_bytes_by_part: dict[str, int] = {}  # the same after a conversion; empty where there is none
    shards: tuple[Shard, ...]
    source: str  # folder | hub | catalogue
    note: str | None = None  # shown to the user, e.g. why the catalogue was used

    @property
    def described_by(self) -> str:
        """Where the description comes from, and why not from a better place."""
        return f"{self.source}: {self.note}" if self.note else self.source

    @property
    def bf16_bytes(self) -> int:
        """Bytes on disk after a conversion to BF16; what it is now where it cannot be converted."""
        if not self.bf16_bytes_by_part:
            return self.total_bytes
        return self.total_bytes + sum(self.bf16_bytes_by_part.values()) - sum(self.bytes_by_part.values())

    @property
    def convertible(self) -> bool:
        """Whether the converter reads it (headfirst/common/convertible.py lists the formats)."""
        conversion = self.quantization.conversion if self.quantization else None
        return conversion is not None and conversion.kernel == self.dtype

    @property
    def converted(self) -> Checkpoint:
        """What a conversion to BF16 makes of it."""
        return self.model_copy(
            update={
                "dtype": "bf16",
                "quantization": None,
                "weight_block_size": None,
                "total_bytes": self.bf16_bytes,
                "bytes_by_dtype": {"BF16": sum(self.bf16_bytes_by_part.values())},
                "bytes_by_part": self.bf16_bytes_by_part,
                "bf16_bytes_by_part": {},
            }
        )

    def computed_in(self, dtype: str) -> Checkpoint:
        """What it is in memory where an engine computes in `dtype` (bf16, fp16 or fp32).

        A quantised checkpoint keeps its weights as they are.
        """
        if self.dtype == dtype or self.dtype not in FLOATS:
            return self
        more, less = FLOATS[dtype], FLOATS[self.dtype]
        parts = {part: size * more // less for part, size in self.bytes_by_part.items()}
        return self.model_copy(
            update={
                "dtype": dtype,
                "total_bytes": self.total_bytes * more // less,
                "bytes_by_dtype": {},
                "bytes_by_part": parts,
            }
        )

    @property
    def quantization_name(self) -> str:
        """The quantisation for people: `compressed-tensors int4`; the dtype where there is none."""
        return str(self.quantization) if self.quantization else self.dtype

    @property
    def largest_shard_bytes(self) -> int:
        """The largest weight file; where sizes are not known, their mean."""
        known = [shard.bytes for shard in self.shards if shard.bytes is not None]
        return max(known, default=-(-self.total_bytes // max(1, len(self.shards))))

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What the architecture is made for; the first is the likeliest. A family may have another
        (a generative reranker has the architecture of a chat model)."""
        name = self.architecture
        if name.endswith("RewardModel"):
            return ("reward",)
        if name.endswith("ForSequenceClassification"):
            return ("rerank", "reward")
        encoder = name.endswith("Model") and not name.endswith(_GENERATING_MODELS)
        if self.sentence_transformers or encoder:
            return ("embedding",)
        return ("chat", "vision") if self.vision else ("chat",)

    def kv(self, kind: LayerType) -> KvHeads:
        """Keys and values of one token in a layer of this kind; MLA keeps its latent vector instead."""
        full = self.full_kv or KvHeads(heads=self.kv_heads, key_dim=self.head_dim, value_dim=self.head_dim)
        return (self.window_kv or full) if kind in ("sliding", "chunked") else full

    def kinds(self, layers: range) -> Counter[LayerType]:
        """How many of these layers are of each kind; one of `both` counts as either."""
        counts = Counter(self.layer_types[layers.start : layers.stop])
        both = counts.pop("both", 0)
        return counts + Counter({"full": both, "linear": both})

    def has_experts(self, layer: int) -> bool:
        """Whether the layer (from 0; those of multi-token prediction follow) is one with routed experts."""
        return self.moe is not None and layer not in self.moe.dense_layers
