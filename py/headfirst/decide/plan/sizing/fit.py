"""Does the model fit into the GPUs, and how many tokens are left for the KV cache? A pure calculation.

Weights per rank are the checkpoint's own bytes, part by part; how a part is split is counted tensor by tensor
where the architecture is known (model/parameters.py): what every rank holds whole counts in full.
KV pool = pool_fraction × (static_fraction × (memory − outside) − weights), as the engine's memory_use states
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from headfirst.common import quantization
from headfirst.decide.engines.base import CacheRoom, Engine, MemoryUse, Values, room_by_token
from headfirst.decide.engines.layout import Layout
from headfirst.decide.hardware.gpus import MIB, Gpu
from headfirst.decide.model.checkpoint import FLOATS, Checkpoint
from headfirst.decide.model.measured import LAYER_PARTS, Part
from headfirst.decide.model.parameters import Split, Tensor, tensors
from headfirst.decide.plan.types import ChosenArgument, Fit

GIB = 1 << 30
CERTAIN = 2
_SURE = 0.9  # the engine measures part of the memory at its start and may have a tenth less

Problem = Literal["", "weights", "length", "requests"]


@dataclass(frozen=True)
class Memory:
    """What one rank has of its GPU: `weights`, of which a draft has `draft`, and the KV cache share `static`
    bytes."""

    checkpoint: Checkpoint
    use: MemoryUse
    weights: int
    static: int
    draft: int = 0
    offloaded: int = 0  # weights beside these, in the host's memory

    @cached_property
    def pool(self) -> int:
        """Bytes of KV cache; negative where the weights do not fit."""
        return int(self.use.pool_fraction * (self.static - self.weights))

    @cached_property
    def room(self) -> CacheRoom:
        """What the KV cache holds; no tokens where the weights alone are too large."""
        return self.use.room(max(0, self.pool))

    @property
    def context(self) -> int:
        """Tokens of a request that the arguments allow, or the model where they are silent."""
        return self.use.max_context or self.checkpoint.max_context

    @cached_property
    def problem(self) -> Problem:
        """Why the engine would end at start, "" if it would not."""
        room, use = self.room, self.use
        if self.pool <= 0 or not room.tokens:
            return "weights"
        if use.context_flag is not None and room.longest < self.context:
            return "length"
        if use.requests_given and room.requests is not None and room.requests < use.requests:
            return "requests"
        return ""

    @cached_property
    def uncertain(self) -> bool:
        """Whether it would end by an estimate alone."""
        estimated = sum(self.use.terms[name] for name in self.use.estimates)
        return bool(self.problem) and not replace(self, static=self.static + estimated).problem

    @property
    def fits(self) -> bool:
        return not self.problem or self.uncertain

    @property
    def certainty(self) -> int:
        """CERTAIN where the engine starts by every estimate, 1 where it may, 0 where it ends."""
        return self.fits + (not self.problem)


def memory(
    checkpoint: Checkpoint, gpu: Gpu, layout: Layout, engine: Engine, *, dtype: str, arguments: Values
) -> Memory:
    """How a rank's memory is divided.

    `dtype` is what is served; `arguments` are the values of the engine's check_arguments.
    """
    use = engine.memory_use(checkpoint, gpu, layout, arguments)
    weights, whole = _weights(checkpoint, layout, dtype, use)
    draft = draft_bytes_per_rank(checkpoint.draft, use.draft_tensor) if checkpoint.draft else 0
    static = int(use.static_fraction * max(0, gpu.memory_bytes - use.outside))
    return Memory(checkpoint, use, weights + draft, static, draft, offloaded=whole - weights)


MemoryOf = Callable[[Layout, Mapping[str, Any]], Memory]
"""A rank's memory with a layout and the values of arguments."""


def memory_of(checkpoint: Checkpoint, gpu: Gpu, engine: Engine, *, dtype: str) -> MemoryOf:
    """`memory` by layout and arguments."""
    return lambda layout, arguments: memory(checkpoint, gpu, layout, engine, dtype=dtype, arguments=arguments)


def fit(
    checkpoint: Checkpoint, gpu: Gpu | None, layout: Layout, engine: Engine, *, dtype: str, arguments: Values
) -> Fit:
    """Memory of one rank, term by term, as `memory` takes it.

    `reserved_bytes` is what the engine sets aside (all terms but `outside_engine`). Memory without weights
    and terms is the KV cache. `gpu` None (unknown, or CPU) gives fits=None with the weights' sizes only.
    """
    total = int(sum(_served_bytes(checkpoint, dtype).values()))
    if gpu is None:
        return _unknown(checkpoint, layout, total, dtype)
    rank_memory = memory(checkpoint, gpu, layout, engine, dtype=dtype, arguments=arguments)
    use, room, pool = rank_memory.use, rank_memory.room, max(0, rank_memory.pool)
    # What the engine leaves of the room beside the weights for its activations.
    left_free = rank_memory.static - rank_memory.weights - rank_memory.pool
    if rank_memory.problem == "weights" and not rank_memory.uncertain:
        reason = _too_large(gpu, layout, rank_memory.weights, rank_memory.static)
    else:
        reason = _room(gpu, layout, rank_memory) + _ends(engine, rank_memory)
    return Fit(
        fits=rank_memory.fits,
        uncertain=rank_memory.uncertain,
        reason=reason,
        gpu_memory_bytes=gpu.memory_bytes,
        weight_bytes_total=total,
        weight_bytes_per_rank=rank_memory.weights,
        draft_bytes_per_rank=rank_memory.draft,
        offloaded_bytes_per_rank=rank_memory.offloaded,
        reserved_bytes=sum(use.terms.values()),
        static_fraction=use.static_fraction,
        kv_bytes_per_token=use.kv_bytes_per_token,
        state_bytes_per_request=use.state_bytes_per_request,
        kv_pool_bytes=pool,
        kv_tokens=room.tokens,
        kv_tokens_of_replica=room.tokens * layout.groups,
        context=rank_memory.context,
        longest_request=min(room.longest, rank_memory.context),
        requests=min(filter(None, (room.requests, use.requests_given and use.requests)), default=None),
        terms={
            **use.terms,
            **({"left_free": left_free} if left_free > 0 else {}),
            # The terms are a fraction of what is free after it, so less of it is missing.
            "outside_engine": gpu.memory_bytes - sum(use.terms.values()) - rank_memory.static,
        },
        estimates=sorted(use.estimates),
        memory_fraction=use.fraction,
        context_flag=use.context_flag if rank_memory.problem == "length" else None,
        context_given=use.context_given,
    )


def request_limit(engine: Engine, rank_memory: Memory) -> ChosenArgument | None:
    """The argument that lowers the number of requests at a time, where the engine ends at start with room for
    fewer; None where none is needed, or a person sets it."""
    use, requests = rank_memory.use, rank_memory.room.requests
    sure = int((requests or 0) * _SURE)
    if use.requests_flag is None or use.requests_given or not sure or sure >= use.requests:
        return None
    return ChosenArgument(
        flag=use.requests_flag,
        value=str(sure),
        reason=f"Each request keeps a state of constant size, and the KV cache has room for {requests}; with "
        f"{use.requests}, the default, {engine.title} ends at start.",
        source=f"{engine.title} {engine.version}, config/compilation.py",
    )


def weight_bytes_per_rank(checkpoint: Checkpoint, layout: Layout, *, dtype: str, use: MemoryUse) -> int:
    """Bytes of weights on the fullest rank, as they are in memory when `dtype` is served."""
    return _weights(checkpoint, layout, dtype, use)[0]


def _weights(checkpoint: Checkpoint, layout: Layout, dtype: str, use: MemoryUse) -> tuple[int, int]:
    """Bytes of weights of the fullest rank: on its GPU, and with what it keeps in the host's memory."""
    known = tensors(checkpoint) or []
    shares = {
        part: size
        * _share(checkpoint, part, [tensor for tensor in known if tensor.part is part], size, layout, use)
        for part, size in _served_bytes(checkpoint, dtype).items()
    }
    if Part.EXPERTS in shares:
        shares[Part.EXPERTS] *= use.expert_growth
    layers = sum(shares.get(part, 0.0) for part in LAYER_PARTS)
    stage = layers * -(-checkpoint.layers // layout.pipeline) / checkpoint.layers
    embedding, head = shares.get(Part.EMBEDDING, 0.0), shares.get(Part.HEAD, 0.0)
    first = embedding + shares.get(Part.VISION, 0.0)
    if layout.pipeline == 1:
        ends = first + head
    else:  # the last stage has a copy of tied embeddings
        ends = max(first, head + (embedding if checkpoint.tied_embeddings else 0.0))
    draft = shares.get(Part.NEXTN, 0.0) if use.draft_layers else 0.0
    return int(stage - use.host_weights(stage) + ends + draft), int(stage + ends + draft)


def draft_bytes_per_rank(draft: Checkpoint, ranks: int) -> int:
    """Bytes of a draft model's weights on one of `ranks` ranks; an embedding or a head that its files have is
    counted, also where the engine then takes the model's."""
    use = MemoryUse({}, 1.0, 0, ranks, draft.nextn_layers or 1, room_by_token(0))
    divided = weight_bytes_per_rank(draft, Layout(ranks), dtype=draft.dtype, use=use)
    whole = draft.drafting.whole_bytes if draft.drafting else 0
    return divided + whole - whole // ranks


def _served_bytes(checkpoint: Checkpoint, dtype: str) -> dict[Part, float]:
    """Bytes by part in memory: the checkpoint's own, unless a conversion or the engine makes others."""
    stored = {Part(name): float(size) for name, size in checkpoint.bytes_by_part.items()}
    if checkpoint.tied_embeddings:
        stored.pop(Part.HEAD, None)  # some files have the tied head a second time; no engine loads it
    if not stored:  # no header was read
        stored = _estimated_parts(checkpoint)
    if dtype == checkpoint.dtype:
        return stored
    if dtype == "bf16":
        return _served_bytes(checkpoint.converted, dtype)
    scheme = quantization.find(dtype)
    if scheme and checkpoint.quantization is None:  # quantised while it is loaded
        share = scheme.bits / (8 * FLOATS[checkpoint.dtype])
        return {part: size * share if part in LAYER_PARTS else size for part, size in stored.items()}
    return stored


def _estimated_parts(checkpoint: Checkpoint) -> dict[Part, float]:
    """All bytes, by part as without quantisation; of an unknown architecture as one part."""
    sizes: dict[Part, float] = {}
    for tensor in tensors(checkpoint) or []:
        sizes[tensor.part] = sizes.get(tensor.part, 0.0) + tensor.plain_bytes
    if not sizes:
        return {Part.DENSE: float(checkpoint.total_bytes)}
    factor = checkpoint.total_bytes / sum(sizes.values())
    return {part: size * factor for part, size in sizes.items()}


def _share(
    checkpoint: Checkpoint, part: Part, known: list[Tensor], served: float, layout: Layout, use: MemoryUse
) -> float:
    """What the fullest rank of a stage holds of a part of `served` bytes: between 1/ranks and all of it.

    `known`: the part's tensors.
    """
    if part is Part.EMBEDDING:  # as attention is: groups with requests of their own read their own rows
        return 1 / (use.embedding_tensor or use.attention_tensor)
    if part is Part.HEAD and use.head_tensor:
        return 1 / use.head_tensor
    if part is Part.VISION and use.vision_whole:
        return 1
    if not known:  # an unknown architecture: nothing is known to be held whole
        split = {Part.EXPERTS: Split.EXPERTS, Part.ATTENTION: Split.HEADS}.get(part, Split.SHARDED)
        return 1 / _ranks(checkpoint, split, layout, use)
    matrices = sum(tensor.parameters for tensor in known if tensor.linear)
    others = sum(tensor.plain_bytes for tensor in known if not tensor.linear)
    # Of a quantised part the matrices are smaller and the rest is as large as ever.
    density = max(0.0, served - others) / matrices if matrices else 0.0
    sizes = [tensor.parameters * density if tensor.linear else tensor.plain_bytes for tensor in known]
    ranks = (_ranks(checkpoint, tensor.split, layout, use) for tensor in known)
    bytes_per_rank = (size / count for size, count in zip(sizes, ranks, strict=True))
    return sum(bytes_per_rank) / (sum(sizes) or 1)


def _ranks(checkpoint: Checkpoint, split: Split, layout: Layout, use: MemoryUse) -> int:
    """Among how many ranks of a stage a tensor is divided."""
    return {
        Split.SHARDED: layout.tensor,
        Split.EXPERTS: max(layout.tensor, layout.expert),
        Split.HEADS: use.attention_tensor,
        Split.KV: min(use.attention_tensor, checkpoint.kv_heads),
        Split.WHOLE: 1,
    }[split]


def _room(gpu: Gpu, layout: Layout, rank_memory: Memory) -> str:
    room, use = rank_memory.room, rank_memory.use
    text = (
        f"{_each(layout)} ({gpu.name}) holds {memory_text(rank_memory.weights)} of weights and "
        f"{memory_text(max(0, rank_memory.pool))} of KV cache: {room.tokens:,} tokens"
    )
    text += (
        f" in each of {layout.groups} groups with separate requests, {room.tokens * layout.groups:,} in "
        "the replica."
        if layout.groups > 1
        else "."
    )
    if use.state_bytes_per_request:
        states = memory_text(use.state_bytes_per_request)
        text += f" A request also keeps up to {states} of states and windows."
    context, most = rank_memory.context, rank_memory.checkpoint.max_context
    if context < most and use.context_flag:
        text += f" Requests have up to {context:,} of the model's {most:,} tokens ({use.context_flag})."
    if room.longest < context:
        text += f" One request can have at most {room.longest:,} tokens, although {context:,} are allowed."
    return text


def _ends(engine: Engine, rank_memory: Memory) -> str:
    """What the engine does at its start, and the argument against it; "" where it starts."""
    use, room = rank_memory.use, rank_memory.room
    if not rank_memory.problem:
        return ""
    remedy = {
        "weights": "take more GPUs",
        "length": f"set {use.context_flag} to {room.longest} or less",
        "requests": f"set {use.requests_flag} to {room.requests} or less",
    }[rank_memory.problem]
    if not rank_memory.uncertain:
        return f" {engine.title} then ends at start: {remedy}."
    names = " and ".join(name.replace("_", " ") for name in sorted(use.estimates))
    return (
        f" This includes estimates ({names}), which {engine.title} measures when it starts. If it ends then, "
        f"{remedy}."
    )


def _each(layout: Layout) -> str:
    return f"Each of {layout.world} GPUs" if layout.world > 1 else "The GPU"


def _too_large(gpu: Gpu, layout: Layout, weights: int, static: int) -> str:
    return (
        f"{_each(layout)} ({gpu.name}, {memory_text(gpu.memory_bytes)}) would hold {memory_text(weights)} of "
        f"weights, and the engine has {memory_text(max(0, static))} for weights and KV cache."
    )


def memory_text(size: int) -> str:
    """Bytes as text in GiB, or in MiB where they are less than 0.1 GiB."""
    return f"{size / MIB:.0f} MiB" if 0 < size < GIB // 10 else f"{size / GIB:.1f} GiB"


def _unknown(checkpoint: Checkpoint, layout: Layout, total: int, dtype: str) -> Fit:
    plain = MemoryUse({}, 1.0, 0, layout.tensor, 0, room_by_token(0))
    return Fit(
        fits=None,
        reason="The memory of the GPUs is unknown, so the fit is not computed.",
        weight_bytes_total=total,
        weight_bytes_per_rank=weight_bytes_per_rank(checkpoint, layout, dtype=dtype, use=plain),
        context=checkpoint.max_context,
    )
