"""How vLLM divides a GPU's memory.

KV cache = gpu_memory_utilization × memory − weights − what the largest step needs − CUDA graphs − what NCCL
and libraries take (v1/worker/gpu_worker.py, determine_available_memory; utils/mem_utils.py). vLLM measures
the last three; here they are estimated from the tensors of that step. A batch's defaults are those of
engine/arg_utils.py (get_batch_defaults).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from headfirst.decide.engines.arguments import whole
from headfirst.decide.engines.base import MemoryFraction, MemoryUse, Values
from headfirst.decide.engines.layout import Layout
from headfirst.decide.engines.lora import estimated
from headfirst.decide.engines.vllm import kv_cache, lora
from headfirst.decide.engines.vllm.layout import draft_ranks, expert_ranks
from headfirst.decide.engines.vllm.support import SupportTable
from headfirst.decide.hardware.gpus import MIB, Gpu
from headfirst.decide.model.checkpoint import Checkpoint

_UTILIZATION = 0.92
_GIB = 1 << 30
# Of a server: memory from this many GiB on, tokens in a step, requests in a step. A100s are in the last row.
_BATCHES = ((160, 16384, 1024), (70, 8192, 1024), (0, 2048, 256))
_BATCHED_DATA_TOKENS = 256  # SchedulerConfig.DEFAULT_MAX_NUM_BATCHED_TOKENS_FOR_BATCHED_DP
_BATCHED_DATA = frozenset({"deepep_low_latency", "nixl_ep"})
_ELEMENT = 2  # bytes of an activation
# Bytes for each logit of a step: float32, its sorted copy and the probabilities (v1/sample).
_LOGIT = 16
_STEPS_BESIDE_STAGES = 1  # with asynchronous scheduling, the default (config/vllm.py, max_concurrent_batches)
# vLLM measures them when it starts.
_ESTIMATES = frozenset({"activations", "cuda_graphs"})
# NCCL's buffers and those of libraries, of the memory that gpu_memory_utilization allows: 0.1 GiB on one GPU
# (vllm #12126), more with NCCL and symmetric memory.
_OUTSIDE_ONE_GPU = 512 * MIB
_OUTSIDE_SEVERAL_GPUS = 2048 * MIB
_BLACKWELL = 10  # of data centres: compute capability 10.x
# Of CUDA graphs, as vLLM's logs report them: 0.5 to 1.5 GiB for 51 sizes.
_SHARED_GRAPHS = 256 * MIB
_GRAPH = 8 * MIB
_GRAPH_OF_RANKS = 16 * MIB
_MOST_CAPTURED = 1 << 20  # tokens


@dataclass(frozen=True)
class LargestStep:
    """The largest step: tokens, and requests that are sampled."""

    tokens: int
    requests: int


def batch(gpu: Gpu, layout: Layout, checkpoint: Checkpoint, values: Values) -> LargestStep:
    """What vLLM takes for --max-num-batched-tokens and --max-num-seqs."""
    large = [row for row in _BATCHES if gpu.memory_bytes >= row[0] * _GIB]
    if "a100" in gpu.name.lower() or gpu.compute_capability == (12, 1):
        large = [row for row in large if row[0] != 70] if gpu.memory_bytes < 160 * _GIB else large
    _, tokens, requests = large[0]
    if layout.data > 1 and layout.expert > 1 and values.get("all2all_backend") in _BATCHED_DATA:
        tokens = _BATCHED_DATA_TOKENS
    if values.get("performance_mode") == "throughput":
        tokens, requests = 2 * tokens, 2 * requests
    requests = values.get("max_num_seqs", requests)
    if "max_num_batched_tokens" in values:
        tokens = values["max_num_batched_tokens"]
    else:
        tokens = min(tokens, requests * context(checkpoint, values))
    return LargestStep(tokens, requests if "max_num_seqs" in values else min(requests, tokens))


def context(checkpoint: Checkpoint, values: Values) -> int:
    """Tokens of the longest request: --max-model-len, or the model's own without LongRoPE's factors
    (config/model.py, _get_and_verify_max_len)."""
    limit = values.get("max_model_len")
    return int(limit) if limit and limit > 0 else checkpoint.short_context or checkpoint.max_context


def memory_use(
    has: SupportTable, checkpoint: Checkpoint, gpu: Gpu, layout: Layout, values: Values
) -> MemoryUse:
    """What is kept out of weights and KV cache, item by item, and the fraction for these two."""
    step = batch(gpu, layout, checkpoint, values)
    utilization = values.get("gpu_memory_utilization", _UTILIZATION)
    terms = {
        "outside_gpu_memory_utilization": int((1 - utilization) * gpu.memory_bytes),
        "activations": _activations(checkpoint, layout, step),
    }
    graphs = _graphs(gpu, layout, step, values)
    if graphs:
        terms["cuda_graphs"] = graphs
    if adapters := lora.buffer_bytes(has, checkpoint, layout, values):
        terms["adapters"] = adapters
    draft = _draft_layers(checkpoint, values)
    longest = context(checkpoint, values)
    flying = (layout.pipeline + _STEPS_BESIDE_STAGES) * step.tokens
    cache = kv_cache.blocks(checkpoint, gpu, layout, values, in_flight=flying, drafts=draft)
    cap = _cap(values, cache.bytes)
    outside = _OUTSIDE_ONE_GPU if layout.world == 1 else _OUTSIDE_SEVERAL_GPUS
    inside = max(1, gpu.memory_bytes - outside)
    return MemoryUse(
        terms=terms,
        static_fraction=max(0.0, (inside - sum(terms.values())) / inside),
        kv_bytes_per_token=cache.bytes_per_token,
        state_bytes_per_request=cache.bytes_per_request(longest),
        attention_tensor=layout.tensor,
        draft_layers=draft,
        draft_tensor=draft_ranks(layout, values),
        room=lambda size: cache.room(size, longest, cap),
        outside=outside,
        fraction=MemoryFraction(
            "--gpu-memory-utilization", float(utilization), "gpu_memory_utilization" in values
        ),
        estimates=(_ESTIMATES | estimated(checkpoint)) & terms.keys(),
        vision_whole=values.get("mm_encoder_tp_mode") == "data",
        host_weights=partial(_host_weights, checkpoint, values),
        max_context=longest,
        # With --max-model-len auto (-1) vLLM takes what fits.
        context_flag=None if values.get("max_model_len") == -1 else "--max-model-len",
        context_given="max_model_len" in values,
        requests=step.requests,
        requests_given="max_num_seqs" in values,
        requests_flag="--max-num-seqs"
        if checkpoint.kinds(range(checkpoint.layers))["linear"] and graphs
        else None,
    )


def _host_weights(checkpoint: Checkpoint, values: Values, layers: float) -> float:
    """Bytes of a stage's layers that stay in host memory (config/offload.py): up to a size, or of groups."""
    group: int = values.get("offload_group_size", 0)
    limit: float = values.get("cpu_offload_gb", 0)
    backend = values.get("offload_backend", "auto")
    if backend == "prefetch" or (backend == "auto" and group):
        buffers: float = values.get("offload_prefetch_step", 1) / checkpoint.layers
        share: float = values.get("offload_num_in_group", 1) / group if group else 0
        return layers * max(0.0, share - buffers)
    return min(layers, limit * _GIB)


def _draft_layers(checkpoint: Checkpoint, values: Values) -> int:
    """Layers of the checkpoint that draft; a draft model of its own has none of them."""
    config = values.get("speculative_config") or {}
    method = values.get("spec_method") or config.get("method") or ""
    elsewhere = values.get("spec_model") or config.get("model")
    return checkpoint.nextn_layers if method.endswith(("mtp", "dspark")) and not elsewhere else 0


def _cap(values: Values, block_bytes: int) -> int | None:
    """The blocks of the KV cache where the user sets its size."""
    if size := values.get("kv_cache_memory_bytes"):
        return int(size // block_bytes)
    blocks: int | None = values.get("num_gpu_blocks_override")
    return blocks


def _activations(checkpoint: Checkpoint, layout: Layout, step: LargestStep) -> int:
    """The larger of a layer's tensors for all tokens and of sampling for all requests."""
    hidden = checkpoint.hidden_size
    widths = [2 * checkpoint.intermediate_size // layout.tensor]
    if moe := checkpoint.moe:
        # Each token is computed by its experts, which the ranks of a stage divide.
        share = moe.intermediate_size // (1 if layout.expert > 1 else expert_ranks(layout))
        widths.append(moe.experts_per_token * (2 * share + hidden))
    layer = step.tokens * (4 * hidden + max(widths) * 3 // 2) * _ELEMENT
    sampling = step.requests * checkpoint.vocab_size * _LOGIT
    return max(layer, sampling)


def _graphs(gpu: Gpu, layout: Layout, step: LargestStep, values: Values) -> int:
    """CUDA graphs, whole and piecewise, of each captured size; all share the largest one's memory."""
    compilation = values.get("compilation_config", {})
    if values.get("enforce_eager") or str(compilation.get("cudagraph_mode", "")).upper() == "NONE":
        return 0
    sizes = values.get("cudagraph_capture_sizes") or compilation.get("cudagraph_capture_sizes")
    name = "max_cudagraph_capture_size"
    largest = values.get(name) or whole(compilation, name, 0)
    if not largest:
        largest = min(2 * step.requests, 1024 if _blackwell(gpu) else 512, step.tokens)
    captured = len(sizes) if isinstance(sizes, list) and sizes else _captured(min(largest, _MOST_CAPTURED))
    return _SHARED_GRAPHS + captured * (_GRAPH if layout.tensor == 1 else _GRAPH_OF_RANKS)


def _blackwell(gpu: Gpu) -> bool:
    return gpu.compute_capability is not None and gpu.compute_capability[0] == _BLACKWELL


def _captured(largest: int) -> int:
    """How many sizes vLLM captures up to `largest` tokens (config/vllm.py, _set_cudagraph_sizes)."""
    sizes = {1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)}
    return sum(size <= largest for size in sizes)
