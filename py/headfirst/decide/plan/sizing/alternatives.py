"""What would work where a model does not fit: another precision, more nodes, a smaller model. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headfirst.common import quantization
from headfirst.common.errors import InputError
from headfirst.decide.engines import presets
from headfirst.decide.engines.base import Engine
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.model import families
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.parameters import parameters
from headfirst.decide.plan.sizing import parallel
from headfirst.decide.plan.sizing.fit import memory
from headfirst.decide.plan.sizing.sizes import Copy, Fleet, best, copy_on, on_fewest_nodes
from headfirst.decide.plan.weights import precision

# What publishers append to a model's name beside a scheme's name: Qwen3-32B-AWQ, Llama-3.1-8B-quantized.w8a8.
_SUFFIXES = r"fp4|w\d+a\d+|quantized|bf16|fp16|dynamic|kv|v2|block|channel"
_MOST = 3  # sentences of a kind
_SHORTEST = 8192  # tokens of a request; a plan for shorter ones is no advice
_SMALLER = 0.9  # of the parameters
_GPUS_OF_A_NODE = 8


@dataclass(frozen=True)
class Attempt:
    """What was planned: a checkpoint, served as `dtype` with this layout and the user's arguments.

    `longest` are the tokens of the longest request; 0 where the model does not fit.
    """

    checkpoint: Checkpoint
    fleet: Fleet
    engine: Engine
    layout: Layout
    dtype: str
    user_arguments: tuple[str, ...] = ()
    longest: int = 0


def alternatives(attempt: Attempt, others: Iterable[Checkpoint]) -> list[str]:
    """Sentences, the one that changes least first; empty where nothing is known to work better.

    Each was planned. `others` are the checkpoints that may be proposed.
    """
    sentences = smaller_reserve(attempt)
    checkpoint = attempt.checkpoint
    known = [other for other in others if other.id.lower() != checkpoint.id.lower()]
    sentences += _other_precisions(attempt, known)
    sentences += _quantised_on_load(attempt)
    sentences += _more_gpus(attempt)
    return sentences + _smaller(attempt, known)


def smaller_reserve(attempt: Attempt) -> list[str]:
    """Arguments of the engine with which more memory is for weights and KV cache."""
    engine, layout = attempt.engine, attempt.layout
    users = engine.check_arguments(attempt.user_arguments).values
    least = parallel.enough(attempt.checkpoint)
    best_step: tuple[int, str] | None = None
    for step in presets.reserves(engine.name):
        words = presets.words(step.arguments)
        if engine.check_arguments(words).values.keys() & users.keys():
            continue
        values = engine.check_arguments([*words, *attempt.user_arguments]).values
        effective = engine.layout(layout.tensor, layout.pipeline, values)
        planned = memory(
            attempt.checkpoint, attempt.fleet.gpu, effective, engine, dtype=attempt.dtype, arguments=values
        )
        longest, flag = planned.room.longest, planned.use.context_flag
        if not planned.fits and flag and longest >= _SHORTEST:
            words += [flag, str(longest // 1024 * 1024)]
        elif not planned.fits:
            continue
        if longest > attempt.longest and (best_step is None or longest > best_step[0]):
            written = " ".join([*attempt.user_arguments, *words])
            groups = effective.attention_data * effective.data
            each = f" in each of {groups} groups" if groups > 1 else ""
            result = f"fits, with {planned.room.tokens:,} tokens of KV cache{each}: {step.cost}."
            best_step = (longest, f'engine_args="{written}" {result}')
        if best_step and best_step[0] >= least:
            break
    return [best_step[1]] if best_step else []


def _more_gpus(attempt: Attempt) -> list[str]:
    """The fewest GPUs of this kind that hold a copy: in the one node that there is, else in more nodes."""
    checkpoint, fleet, engine = attempt.checkpoint, attempt.fleet, attempt.engine
    if fleet.nodes == 1:
        for gpus in range(fleet.gpus_per_node + 1, _GPUS_OF_A_NODE + 1):
            larger = replace(fleet, gpus_per_node=gpus)
            copy = copy_on(checkpoint, larger, Machines(1, gpus), engine, attempt.dtype)
            if copy is not None:
                return [f"{gpus} × {fleet.gpu.name} in the node hold it ({_settings(copy)})."]
    copy = on_fewest_nodes(checkpoint, fleet, engine, dtype=attempt.dtype)
    if copy is None or copy.machines.nodes <= fleet.nodes:
        return []
    settings = f" with {_settings(copy)}" if copy.context_flag else ""
    return [
        f"{copy.machines.nodes} nodes with {fleet.gpus_per_node} × {fleet.gpu.name} each hold it{settings}."
    ]


def base_name(id: str) -> str:
    """The model's name without publisher and precision: the same for all checkpoints of one model."""
    precision = rf"[-_.](?:{'|'.join(map(re.escape, quantization.names()))}|{_SUFFIXES})(?=[-_.]|$)"
    return re.sub(precision, "", id.rstrip("/").rpartition("/")[2].lower().removeprefix("meta-"))


def _other_precisions(attempt: Attempt, known: Sequence[Checkpoint]) -> list[str]:
    """Published checkpoints of the same model that fit, the largest first."""
    name = base_name(attempt.checkpoint.id)
    same = [other for other in known if base_name(other.id) == name]
    fitting = _fitting(attempt, same)
    fitting.sort(key=lambda pair: -pair[0].total_bytes)
    return [
        f"model={other.id} is the same model in {precision.title(other)} and fits with {_sizes(copy)}."
        for other, copy in fitting[:_MOST]
    ]


def _sizes(copy: Copy) -> str:
    """The settings of a copy, and its KV cache."""
    return f"{_settings(copy)}: {copy.kv_tokens:,} tokens of KV cache"


def _settings(copy: Copy) -> str:
    """What the inventory sets for a copy."""
    settings = f"tensor_parallel={copy.layout.tensor}"
    settings += f" and pipeline_parallel={copy.layout.pipeline}" if copy.layout.pipeline > 1 else ""
    if copy.context_flag:
        settings += f' and engine_args="{copy.context_flag} {copy.context}"'
    return settings


def _is_better(copy: Copy, attempt: Attempt) -> bool:
    """Whether it holds a longer request than the plan, and one that is worth a service."""
    return copy.longest > max(attempt.longest, min(_SHORTEST, attempt.checkpoint.max_context) - 1)


def _quantised_on_load(attempt: Attempt) -> list[str]:
    checkpoint, engine, fleet = attempt.checkpoint, attempt.engine, attempt.fleet
    users = engine.check_arguments(attempt.user_arguments).values
    if checkpoint.dtype not in precision.UNQUANTISED or "quantization" in users:
        return []
    advice = []
    for way in presets.quantizations(engine.name):
        if not fleet.gpu.reaches(way.capability):
            continue
        copy = best(checkpoint, fleet, engine, dtype=way.dtype)
        if copy is not None and _is_better(copy, attempt):
            context = {copy.context_flag: str(copy.context)} if copy.context_flag else {}
            words = " ".join([*attempt.user_arguments, *presets.words({**way.arguments, **context})])
            advice.append(
                f'engine_args="{words}" converts it to {way.dtype.upper()} while it loads, which fits with '
                f"{_sizes(replace(copy, context_flag=None))}."
            )
    return advice


def _smaller(attempt: Attempt, known: Sequence[Checkpoint]) -> list[str]:
    """The other model of the same family with the most parameters that fits, and fewer than this one; of
    its precisions one that holds a long request."""
    checkpoint, family = attempt.checkpoint, families.find(attempt.checkpoint)
    if family is None:
        return []
    name, size = base_name(checkpoint.id), parameters(checkpoint)
    relatives = [
        other
        for other in known
        if base_name(other.id) != name
        and parameters(other) < _SMALLER * size
        and (its := families.find(other)) is not None
        and its.name == family.name
    ]
    fitting = _fitting(attempt, relatives)
    if not fitting:
        return []
    most = max(parameters(other) for other, _ in fitting)
    largest, copy = max(
        (pair for pair in fitting if parameters(pair[0]) >= _SMALLER * most),
        key=lambda pair: (_is_long(*pair), pair[0].total_bytes),
    )
    return [f"model={largest.id} is a smaller model of the same family and fits with {_sizes(copy)}."]


def _is_long(checkpoint: Checkpoint, copy: Copy) -> bool:
    return copy.longest >= parallel.enough(checkpoint)


def _fitting(attempt: Attempt, known: Iterable[Checkpoint]) -> list[tuple[Checkpoint, Copy]]:
    """Those that the GPUs serve, with a longer request than this plan."""
    fitting = []
    for other in known:
        try:
            _, loaded = precision.served(other, attempt.fleet.gpu, attempt.engine)
        except InputError:
            continue
        copy = best(loaded.checkpoint, attempt.fleet, attempt.engine, dtype=loaded.dtype)
        if copy is not None and _is_better(copy, attempt):
            fitting.append((other, copy))
    return fitting


def unfit_hint(sentences: Sequence[str]) -> str:
    """What to type next where the model cannot be served as asked."""
    listed = sentences or ["No other precision or number of nodes fits."]
    verbs = "`deploy models` lists what these GPUs can serve; `deploy plan` shows the memory of a GPU."
    return "\n".join([*listed, verbs])
