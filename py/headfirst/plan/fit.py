"""Does the model fit into the GPUs, and how many tokens are left for the KV cache? A pure calculation.

Weights per rank are counted tensor by tensor (model/parameters.py); what every rank holds whole counts in
full. KV pool = static_fraction × (memory − outside_engine) − weights, as SGLang 0.5.23 computes it from the
memory that is free before loading (mem_cache/kv_cache_configurator.py, _profile_available_bytes).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headfirst.engines.base import Engine, MemoryUse
from headfirst.model.checkpoint import ELEMENT_BYTES, Checkpoint
from headfirst.model.parameters import Place, Split, Tensor, tensors
from headfirst.plan.gpus import MIB, Gpu
from headfirst.plan.parallel import Machines, Parallel
from headfirst.plan.parallel import check as check_parallel
from headfirst.plan.types import Fit

GIB = 1 << 30
# CUDA context, NCCL buffers and what the driver keeps, in the memory that nvidia-smi reports. From logs:
# 140.4 − 12.25 − 125.65 GiB on H200 (InferenceX #2128), 80 − 36.5 − 41.2 GiB on A100 (sglang #4161, #3784).
OUTSIDE_ENGINE_BYTES = 2560 * MIB


def fit(
    checkpoint: Checkpoint,
    gpu: Gpu | None,
    parallel: Parallel,
    engine: Engine,
    *,
    dtype: str,
    arguments: Mapping[str, Any],
) -> Fit:
    """Memory of one rank, term by term.

    `dtype` is what is served; `arguments` are the values of the engine's check_arguments.
    `reserved_bytes` is what the engine sets aside (all terms but `outside_engine`).
    `gpu` None (unknown, or CPU) gives fits=None with the weights' sizes only.
    """
    total = checkpoint.bf16_bytes if dtype == "bf16" else checkpoint.total_bytes
    if gpu is None:
        return _unknown(checkpoint, parallel, total, dtype)
    use = engine.memory_use(checkpoint, gpu, parallel, arguments)
    weights = weight_bytes_per_rank(checkpoint, parallel, dtype=dtype, use=use)
    static = _static_bytes(gpu, use)
    pool = static - weights
    tokens = max(0, pool) // use.kv_bytes_per_token
    if use.max_tokens is not None:
        tokens = min(tokens, use.max_tokens)
    if pool > 0:
        context = arguments.get("context_length") or checkpoint.max_context
        reason = _room(gpu, parallel, weights, pool, tokens, context)
    else:
        needed = _gpus_needed(checkpoint, gpu, parallel, engine, dtype=dtype, arguments=arguments)
        reason = _too_large(gpu, parallel, weights, static, needed)
    return Fit(
        fits=pool > 0,
        reason=reason,
        gpu_memory_bytes=gpu.memory_bytes,
        weight_bytes_total=total,
        weight_bytes_per_rank=weights,
        reserved_bytes=sum(use.terms.values()),
        static_fraction=use.static_fraction,
        kv_bytes_per_token=use.kv_bytes_per_token,
        kv_pool_bytes=max(0, pool),
        kv_tokens=tokens,
        terms={**use.terms, "outside_engine": OUTSIDE_ENGINE_BYTES},
    )


def weight_bytes_per_rank(checkpoint: Checkpoint, parallel: Parallel, *, dtype: str, use: MemoryUse) -> int:
    """Bytes of weights on the fullest rank, as they lie in memory when `dtype` is served."""
    found = tensors(checkpoint)
    if found is None:  # unknown architecture: an even share is the best guess
        total = checkpoint.bf16_bytes if dtype == "bf16" else checkpoint.total_bytes
        return -(-total // parallel.world)
    sums = dict.fromkeys(Place, 0.0)
    for tensor in found:
        sums[tensor.place] += _bytes(checkpoint, tensor, dtype) / _parts(checkpoint, tensor, parallel, use)
    stage = sums[Place.LAYER] * -(-checkpoint.layers // parallel.pipeline) / checkpoint.layers
    ends = sums[Place.EMBEDDING], sums[Place.HEAD]
    draft = sums[Place.NEXTN] if use.draft_layers else 0.0
    return int(stage + (sum(ends) if parallel.pipeline == 1 else max(ends)) + draft)


def _bytes(checkpoint: Checkpoint, tensor: Tensor, dtype: str) -> int:
    if tensor.fp32:
        return tensor.parameters * ELEMENT_BYTES["F32"]
    if dtype == "fp8" and tensor.linear and checkpoint.weight_block_size:
        return tensor.parameters + tensor.scales(checkpoint.weight_block_size) * ELEMENT_BYTES["F32"]
    return tensor.parameters * {"fp32": 4, "fp8": 1, "int8": 1}.get(dtype, 2)


def _parts(checkpoint: Checkpoint, tensor: Tensor, parallel: Parallel, use: MemoryUse) -> int:
    """Among how many ranks of a stage the tensor is divided."""
    return {
        Split.SHARDED: parallel.tensor,
        Split.HEADS: use.attention_tensor,
        Split.KV: min(use.attention_tensor, checkpoint.kv_heads),
        Split.WHOLE: 1,
    }[tensor.split]


def _static_bytes(gpu: Gpu, use: MemoryUse) -> int:
    """Bytes for weights and KV cache together."""
    return int(use.static_fraction * (gpu.memory_bytes - OUTSIDE_ENGINE_BYTES))


def _gpus_needed(
    checkpoint: Checkpoint,
    gpu: Gpu,
    parallel: Parallel,
    engine: Engine,
    *,
    dtype: str,
    arguments: Mapping[str, Any],
) -> Parallel | None:
    """The smallest sizes above `parallel` that fit on this kind of GPU; None where no size does."""
    sizes = [Parallel(t, p) for t in range(1, checkpoint.attention_heads + 1) for p in (1, 2, 4, 8)]
    for wanted in sorted(sizes, key=lambda size: (size.world, size.pipeline)):
        if wanted.world <= parallel.world:
            continue
        if check_parallel(checkpoint, Machines(nodes=1, ranks_per_node=None), wanted, dtype=dtype):
            continue
        use = engine.memory_use(checkpoint, gpu, wanted, arguments)
        if weight_bytes_per_rank(checkpoint, wanted, dtype=dtype, use=use) < _static_bytes(gpu, use):
            return wanted
    return None


def _room(gpu: Gpu, parallel: Parallel, weights: int, pool: int, tokens: int, context: int) -> str:
    text = (
        f"Each of {parallel.world} GPUs ({gpu.name}) holds {_gib(weights)} of weights and "
        f"{_gib(pool)} of KV cache: {tokens:,} tokens."
    )
    if tokens < context:
        text += f" One request can be at most that long, though {context:,} tokens are allowed."
    return text


def _too_large(gpu: Gpu, parallel: Parallel, weights: int, static: int, needed: Parallel | None) -> str:
    text = (
        f"Each of {parallel.world} GPUs ({gpu.name}, {_gib(gpu.memory_bytes)}) would hold {_gib(weights)} of "
        f"weights, and the engine has {_gib(max(0, static))} for weights and KV cache."
    )
    if needed is None:
        return f"{text} No number of these GPUs is enough."
    stages = f", pipeline_parallel={needed.pipeline}" if needed.pipeline > 1 else ""
    return f"{text} At least {needed.world} such GPUs are needed (tensor_parallel={needed.tensor}{stages})."


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


def _unknown(checkpoint: Checkpoint, parallel: Parallel, total: int, dtype: str) -> Fit:
    plain = MemoryUse({}, 1.0, 0, parallel.tensor, 0, None)
    return Fit(
        fits=None,
        reason="The GPUs' memory is not known here, so the fit is not computed.",
        gpu_memory_bytes=None,
        weight_bytes_total=total,
        weight_bytes_per_rank=weight_bytes_per_rank(checkpoint, parallel, dtype=dtype, use=plain),
        reserved_bytes=0,
        static_fraction=None,
        kv_bytes_per_token=0,
        kv_pool_bytes=None,
        kv_tokens=None,
        terms={},
    )
