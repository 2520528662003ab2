"""Which hidden layers each host of a service loads, and how many bytes that is. A pure calculation.

The ranks of a replica are numbered node by node, a stage's tensor ranks in a row (vllm/distributed/
parallel_state.py, initialize_model_parallel; sglang/srt/entrypoints/engine.py, _calculate_rank_ranges).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headfirst.decide.cluster.types import Service
from headfirst.decide.engines.base import Engine
from headfirst.decide.engines.layout import Layout
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.measured import LAYER_PARTS, Part


def by_host(service: Service, engine: Engine, checkpoint: Checkpoint, layout: Layout) -> dict[str, range]:
    """The layers of each host, from the first to the last that its ranks load; all where that is not known.

    Data-parallel groups and other launchers place ranks in their own way.
    """
    everything = range(checkpoint.layers)
    whole = layout.data > 1 or service.settings.engine_runtime is not None
    return joined(
        {
            host.name: everything
            if whole
            else _of_node(engine, checkpoint.layers, layout, node, len(replica.hosts), service)
        }
        for replica in service.replicas
        for node, host in enumerate(replica.hosts)
    )


def joined(all_spans: Iterable[Mapping[str, range]]) -> dict[str, range]:
    """The layers of each host, from the first to the last that one of several groups of ranks loads."""
    hosts: dict[str, range] = {}
    for spans in all_spans:
        for host, span in spans.items():
            before = hosts.get(host, span)
            hosts[host] = range(min(before.start, span.start), max(before.stop, span.stop))
    return hosts


def _of_node(engine: Engine, layers: int, layout: Layout, node: int, nodes: int, service: Service) -> range:
    ranks = range(layout.world * node // nodes, layout.world * (node + 1) // nodes)
    stages = [
        engine.pipeline_layers(stage, layout.pipeline, layers, service.settings.engine_env)
        for stage in (ranks.start // layout.tensor, (ranks.stop - 1) // layout.tensor)
    ]
    return range(stages[0].start, stages[-1].stop)


def share(checkpoint: Checkpoint, layers: range) -> float:
    """The part of all bytes, 0 to 1, in shards with tensors of these layers or of none: an upper estimate.

    Embedding, head and towers are needed by all, layers of multi-token prediction with the last one. A shard
    that reaches across a border, and those of the embedding and of the head, are needed whole.
    """
    if layers == range(checkpoint.layers):
        return 1.0
    parts = {Part(name): size for name, size in checkpoint.bytes_by_part.items()}
    parts = parts or {Part.DENSE: checkpoint.total_bytes}
    experts = [layer for layer in range(checkpoint.layers) if checkpoint.has_experts(layer)]
    fractions = dict.fromkeys(LAYER_PARTS, len(layers) / checkpoint.layers)
    if experts:
        fractions[Part.EXPERTS] = sum(layer in layers for layer in experts) / len(experts)
    fractions[Part.NEXTN] = float(layers.stop == checkpoint.layers)
    rank_bytes = sum(size * fractions.get(part, 1.0) for part, size in parts.items())
    total = sum(parts.values())
    # Two ends of the range, or one end and the shard at the other end of the model.
    return min(1.0, (rank_bytes + 2 * checkpoint.largest_shard_bytes) / total)


def sent(checkpoint: Checkpoint, layers: Mapping[str, range], head: str) -> float:
    """The part of all bytes, 0 to 1, that leaves the head: what the other hosts need together."""
    others = [span for name, span in layers.items() if name != head]
    if not others:
        return 1.0
    hull = range(min(span.start for span in others), max(span.stop for span in others))
    return share(checkpoint, hull)


def written(layers: range) -> str:
    """`0-30`, both included: as weights/layers.py reads it."""
    return f"{layers.start}-{layers.stop - 1}"
