"""Engine arguments that are chosen for a model: parsers, and what suits `preset=`. A pure calculation.

The rules are the engine's data (engines/<name>/presets.yml). Rules are applied in order, each as a whole: one
is left out where the user's engine_args set one of its flags, where an earlier rule did, and where the engine
or the memory of the GPUs refuses the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headfirst.decide.engines import presets
from headfirst.decide.engines.base import Engine
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.engines.presets import Need, Preset, Rule
from headfirst.decide.hardware.gpus import Gpu
from headfirst.decide.model import families
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.task import Task
from headfirst.decide.plan.sizing import parallel
from headfirst.decide.plan.sizing.fit import fits
from headfirst.decide.plan.types import ChosenArgument


@dataclass(frozen=True)
class Situation:
    """What the rules are applied to. `gpu` is None on CPUs and where it is not known.

    `parsers`: the parsers of reasoning and tool calls are wanted; `dtype` is what is served.
    """

    checkpoint: Checkpoint
    engine: Engine
    task: Task
    preset: Preset | None
    parsers: bool
    gpu: Gpu | None
    machines: Machines
    layout: Layout
    dtype: str
    user_arguments: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """`arguments` are the engine's whole extra arguments, those of the user last."""

    chosen: tuple[ChosenArgument, ...]
    left_out: tuple[str, ...]  # a sentence for each rule that was not applied, with why
    arguments: tuple[str, ...]

    def with_argument(self, argument: ChosenArgument) -> Choice:
        """The same with one more argument, which the user has not set."""
        words = presets.words({argument.flag: argument.value})
        return replace(self, chosen=(*self.chosen, argument), arguments=(*words, *self.arguments))


def wants_parsers(parsers: str | None, preset: str | None) -> bool:
    """Whether parsers are chosen: as `parsers=` sets it, else with every preset."""
    return parsers == "auto" or (parsers is None and preset is not None)


def choose(situation: Situation) -> Choice:
    """The arguments for this situation, each with its reason and source."""
    engine, user = situation.engine, situation.user_arguments
    users = engine.check_arguments(user).values
    taken: dict[str, Any] = {}
    words: list[str] = []
    chosen: list[ChosenArgument] = []
    left_out: list[str] = []
    for rule in presets.rules(engine.name):
        if not applies(rule, situation):
            continue
        new = presets.words(_filled(rule, situation))
        values = engine.check_arguments(new).values
        if values.keys() & taken.keys():
            continue
        if given := values.keys() & users.keys():
            if any(users[name] != values[name] for name in values if name in given):
                left_out.append(_line(new, "engine_args sets another value", rule))
            continue
        if why := _refused(situation, words, new):
            left_out.append(_line(new, why, rule))
            continue
        taken.update(values)
        words += new
        chosen += _chosen(rule, situation)
    return Choice(tuple(chosen), tuple(left_out), (*words, *user))


def applies(rule: Rule, situation: Situation) -> bool:
    """Whether the rule is meant for this model, task, preset, layout and GPU."""
    is_active = rule.always or (situation.preset in rule.presets if rule.presets else situation.parsers)
    if not is_active or situation.task not in rule.tasks:
        return False
    if rule.families:
        family = families.find(situation.checkpoint)
        if family is None or family.name not in rule.families:
            return False
    if rule.capability and (situation.gpu is None or not situation.gpu.reaches(rule.capability)):
        return False
    return all(_has(need, situation) for need in rule.needs)


def _has(need: Need, situation: Situation) -> bool:
    answers: Mapping[Need, bool] = {
        "moe": situation.checkpoint.moe is not None,
        "mla": situation.checkpoint.mla is not None,
        "draft_layers": situation.checkpoint.nextn_layers > 0,
        "one_stage": situation.layout.pipeline == 1,
        "one_node": situation.machines.nodes == 1,
        "several_ranks": situation.layout.tensor > 1,
        "gpu": situation.machines.ranks_per_node is not None,
    }
    return answers[need]


def _filled(rule: Rule, situation: Situation) -> dict[str, str]:
    """The rule's arguments with the sizes of this situation; JSON values have braces of their own."""
    sizes = {
        "{tensor}": str(situation.layout.tensor),
        "{context}": str(situation.checkpoint.max_context),
    }
    filled = {}
    for flag, value in rule.arguments.items():
        for name, size in sizes.items():
            value = value.replace(name, size)
        filled[flag] = value
    return filled


def _chosen(rule: Rule, situation: Situation) -> list[ChosenArgument]:
    return [
        ChosenArgument(flag=flag, value=value, reason=rule.reason, source=rule.source)
        for flag, value in _filled(rule, situation).items()
    ]


def _refused(situation: Situation, before: Sequence[str], new: Sequence[str]) -> str | None:
    """Why the engine or the memory refuses the arguments with `new`, and did not without."""
    engine, layout = situation.engine, situation.layout
    checked = engine.check_arguments([*before, *new, *situation.user_arguments])
    if checked.problems:
        return " ".join(str(problem) for problem in checked.problems)
    effective = engine.layout(layout.tensor, layout.pipeline, checked.values)
    spread = parallel.Spread(
        situation.checkpoint, situation.machines, engine, checked.values, situation.dtype
    )
    problems = spread.problems(effective)
    problems += engine.support_problems(situation.checkpoint, situation.gpu, situation.task, checked.values)
    if problems:
        return "; ".join(problems)
    if not _fits(situation, [*before, *new]) and _fits(situation, before):
        return "the model would not fit into the memory of the GPUs with it"
    return None


def _fits(situation: Situation, chosen: Sequence[str]) -> bool:
    """True also where the memory is not known."""
    if situation.gpu is None:
        return True
    engine, layout = situation.engine, situation.layout
    values = engine.check_arguments([*chosen, *situation.user_arguments]).values
    effective = engine.layout(layout.tensor, layout.pipeline, values)
    return fits(
        situation.checkpoint, situation.gpu, effective, engine, dtype=situation.dtype, arguments=values
    )


def _line(words: Sequence[str], why: str, rule: Rule) -> str:
    return f"{' '.join(words)} is left out: {why}. It is for: {rule.reason[0].lower()}{rule.reason[1:]}"
