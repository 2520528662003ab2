"""Engine arguments that are chosen for a model: parsers, and what suits `preset=`. A pure calculation.

The rules are the engine's data (engines/<name>/presets.yml). Rules are applied in order, each as a whole: one
is left out where the user's engine_args set one of its flags, where an earlier rule did, and where the engine
or the memory of the GPUs refuses the result. What costs precision is offered, and what no rule brings has a
sentence with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headfirst.decide.engines import presets
from headfirst.decide.engines.base import Engine, EngineStart
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.engines.presets import DESTINATIONS, ArgumentRule, Need, Preset, Purpose
from headfirst.decide.hardware.gpus import Gpu
from headfirst.decide.model import families
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.task import Task
from headfirst.decide.plan.sizing import ways
from headfirst.decide.plan.sizing.fit import CERTAIN, memory_of
from headfirst.decide.plan.types import ChosenArgument


@dataclass(frozen=True)
class Situation:
    """What the rules are applied to. `gpu` is None on CPUs and where it is not known.

    `parsers`: the parsers of reasoning and tool calls are wanted, `by_default`: since nothing is written, so
    that why there is none is news of the capabilities alone; `dtype` is what is served.
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
    layout_arguments: tuple[ChosenArgument, ...] = ()  # what the layout needs
    draft_arguments: tuple[ChosenArgument, ...] = ()  # what draft_model needs
    image: str = ""  # "": not known
    by_default: bool = False

    def effective(self, words: Sequence[str]) -> tuple[Layout, Mapping[str, Any]]:
        """The layout and the values with these arguments before those of the user."""
        values = self.engine.check_arguments([*words, *self.user_arguments]).values
        return self.engine.layout(self.layout.tensor, self.layout.pipeline, values), values


@dataclass(frozen=True)
class ArgumentChoice:
    """`arguments` are the engine's whole extra arguments, those of the user last."""

    chosen: tuple[ChosenArgument, ...]
    left_out: tuple[str, ...]  # a sentence for each thing that is not chosen, with why
    arguments: tuple[str, ...]
    absent: Mapping[Purpose, str] = field(default_factory=dict)  # why there is no such argument, a clause

    def with_argument(self, argument: ChosenArgument) -> ArgumentChoice:
        """The same with one more argument, which the user has not set."""
        words = presets.words({argument.flag: argument.value})
        return replace(self, chosen=(*self.chosen, argument), arguments=(*words, *self.arguments))


def choose(situation: Situation) -> ArgumentChoice:
    """The arguments for this situation, each with its reason and source."""
    selection = _Selection(situation)
    for rule in presets.of(situation.engine.name).rules:
        if is_meant(rule, situation):
            selection.apply(rule)
    left_out = (*selection.left_out, *selection.absences())
    arguments = (*selection.words, *situation.user_arguments)
    return ArgumentChoice(tuple(selection.chosen), left_out, arguments, selection.absent)


def is_meant(rule: ArgumentRule, situation: Situation) -> bool:
    """Whether the rule is for this model, task and preset; its needs are checked later."""
    is_active = rule.always or (situation.preset in rule.presets if rule.presets else situation.parsers)
    # What suits a chat suits a text that is continued, except for the parsers of its answers.
    task = "chat" if situation.task == "completion" and rule.presets else situation.task
    if not is_active or task not in rule.tasks:
        return False
    family = families.find(situation.checkpoint)
    return not rule.families or (family is not None and family.name in rule.families)


class _Selection:
    """What the rules came to so far; each is applied once, in their order."""

    def __init__(self, situation: Situation) -> None:
        needed = (*situation.layout_arguments, *situation.draft_arguments)
        self.chosen: list[ChosenArgument] = list(needed)
        self.words = presets.words({argument.flag: argument.value for argument in needed})
        self.left_out: list[str] = []
        self.absent: dict[Purpose, str] = {}
        self._situation = situation
        self._users = situation.engine.check_arguments(situation.user_arguments).values
        self._taken = dict(situation.engine.check_arguments(self.words).values)
        self._unmet: list[tuple[ArgumentRule, str]] = []  # a rule, and the need that the situation lacks
        # Purposes and presets of which a rule has a line or an argument.
        self._settled: set[str] = {situation.preset or ""} if situation.layout_arguments else set()

    def apply(self, rule: ArgumentRule) -> None:
        """Choose the rule's arguments, offer them, or state why neither."""
        why = _unmet(rule, self._situation, self._situation.effective(self.words)[0])
        if why is not None:
            if why:
                self._unmet.append((rule, why))
            return
        new, values = self._new(rule)
        if values.keys() & self._taken.keys():
            return
        if user_flags := values.keys() & self._users.keys():
            self._settle(rule)
            if any(self._users[name] != values[name] for name in user_flags) and not rule.offered:
                self.left_out.append(_line(new, "engine_args sets another value", rule))
            return
        if why := _refused(self._situation, self.words, new):
            if not rule.offered:
                self._settle(rule)
                self.left_out.append(_line(new, why, rule))
                self.absent |= {rule.purpose: why} if rule.purpose else {}
            return
        self._settle(rule)
        self._taken.update(values)
        if rule.offered:
            self.left_out.append(_offer(new, rule))
            return
        self.words += new
        self.chosen += ChosenArgument.each(_filled(rule, self._situation), rule.reason, rule.source)

    def absences(self) -> list[str]:
        """A sentence for each thing that a preset or parsers=auto asks for and no rule brought."""
        lines = []
        clauses: dict[Purpose, str] = {}
        for rule, why in self._unmet:
            new, values = self._new(rule)
            if values.keys() & (self._taken.keys() | self._users.keys()):
                continue
            if rule.purpose:
                clauses.setdefault(rule.purpose, why)
                continue
            self._settle(rule)
            lines.append(_line(new, why, rule))
        for purpose in _purposes(self._situation):
            is_given = DESTINATIONS[purpose] & (self._taken.keys() | self._users.keys())
            if not is_given and purpose not in self._settled:
                self._settled |= {self._situation.preset or ""} if purpose == "drafts" else set()
                self.absent[purpose] = why = _absence(purpose, self._situation, clauses.get(purpose))
                if not self._situation.by_default:
                    cause = f"preset={self._situation.preset}" if self._situation.preset else "parsers=auto"
                    lines.append(f"{cause} adds no {_TITLES[purpose]}: {why}.")
        return lines + self._no_rule()

    def _no_rule(self) -> list[str]:
        """Where the preset as a whole came to nothing."""
        preset, task, engine = self._situation.preset, self._situation.task, self._situation.engine
        if task not in GENERATING and self._situation.parsers and preset is None:
            return [] if self._situation.by_default else [f"parsers=auto adds nothing: {why_nothing(task)}."]
        if preset is None or preset in self._settled:
            return []
        why = presets.absence(engine.name, preset) or f"no rule of {engine.title} is for this model"
        if task not in GENERATING:
            why = f"no rule of {engine.title} is for task={task}"
        return [f"preset={preset} adds no argument of its own: {why}."]

    def _settle(self, rule: ArgumentRule) -> None:
        self._settled |= {rule.purpose} if rule.purpose else set()
        self._settled |= {self._situation.preset or ""} if rule.presets else set()

    def _new(self, rule: ArgumentRule) -> tuple[list[str], Mapping[str, Any]]:
        """The rule's arguments as words, and as the engine reads them."""
        words = presets.words(_filled(rule, self._situation))
        return words, self._situation.engine.check_arguments(words).values


def _unmet(rule: ArgumentRule, situation: Situation, layout: Layout) -> str | None:
    """The need that is lacking, as a clause; "" where that is no news, None where the rule has all."""
    if lowest := rule.compute_capability:
        if situation.gpu is None:
            return ""
        capability = situation.gpu.compute_capability
        if capability is None or not rule.suits(capability):
            return f"it needs compute capability {lowest.removesuffix('+')}, unlike {situation.gpu}"
    return next((_LACKING.get(need, "") for need in rule.needs if not _has(need, situation, layout)), None)


# Needs of which the plan states that they are lacking; the others are what a rule is for.
_LACKING: Mapping[Need, str] = {
    "draft_layers": "the checkpoint has no draft layers",
    "one_stage": "it works without pipeline parallelism only",
}


def _has(need: Need, situation: Situation, layout: Layout) -> bool:
    checkpoint = situation.checkpoint
    answers: Mapping[Need, bool] = {
        "moe": checkpoint.moe is not None,
        "draft_layers": checkpoint.nextn_layers > 0,
        "longrope": checkpoint.short_context is not None,
        # The engines keep DeepSeek-V4's compressed cache in 8 bits, whatever the argument.
        "kv_16_bit": not (checkpoint.quantization and checkpoint.quantization.kv_cache)
        and not checkpoint.compress_ratios,
        "one_stage": layout.pipeline == 1,
        "one_node": situation.machines.nodes == 1,
        "several_ranks": layout.tensor > 1,
        "shared_attention": layout.attention_data == 1,
        "separate_attention": layout.attention_data > 1,
        "gpu": situation.machines.ranks_per_node is not None,
    }
    return answers[need]


GENERATING: tuple[Task, ...] = ("chat", "vision")
_TITLES: Mapping[Purpose, str] = {
    "reasoning": "reasoning parser",
    "tools": "parser of tool calls",
    "drafts": "speculative decoding",
}


def _purposes(situation: Situation) -> list[Purpose]:
    """What the setting asks for, whatever the model."""
    if situation.task not in GENERATING:
        return []
    parsers: list[Purpose] = ["reasoning", "tools"] if situation.parsers else []
    return [*parsers, "drafts"] if situation.preset == "latency" else parsers


def _absence(purpose: Purpose, situation: Situation, lacking: str | None) -> str:
    """Why `purpose` has no argument: what presets.yml states, what is lacking, or that no recipe has it."""
    engine, family = situation.engine, families.find(situation.checkpoint)
    why = presets.absence(engine.name, purpose, family.name) if family else None
    why = why or lacking
    if why is None and purpose == "drafts" and not situation.checkpoint.nextn_layers:
        why = _LACKING["draft_layers"]
    why = why or presets.absence(engine.name, purpose)
    if why:
        return why
    if family is None:
        architecture = situation.checkpoint.architecture
        return f"this id names no known family of {architecture}; engine_args can set it"
    if purpose == "reasoning" and not family.thinks:
        return f"{family.title} is no reasoning model"
    return f"no recipe for {family.title} has one for {engine.title} {engine.version}"


def _filled(rule: ArgumentRule, situation: Situation) -> dict[str, str]:
    """The rule's arguments with the sizes of this situation."""
    sizes = {"{tensor}": situation.layout.tensor, "{context}": situation.checkpoint.max_context}
    return presets.filled(rule.arguments, sizes)


def why_nothing(task: Task) -> str:
    """Why a task that is not of GENERATING has no parsers, as a clause."""
    return f"task={task} has no chats" if task == "completion" else f"task={task} generates no text"


def _refused(situation: Situation, before: Sequence[str], new: Sequence[str]) -> str | None:
    """Why the engine or the memory refuses the arguments with `new`, and did not without."""
    engine, layout = situation.engine, situation.layout
    checked = engine.check_arguments([*before, *new, *situation.user_arguments])
    if checked.problems:
        what = "; ".join(problem.what.rstrip(".") for problem in checked.problems)
        return f"{engine.title} {engine.version} does not accept it ({what})"
    effective = engine.layout(layout.tensor, layout.pipeline, checked.values)
    shared = ways.Ways(situation.checkpoint, situation.machines, engine, checked.values, situation.dtype)
    problems = shared.problems(effective)
    problems += engine.support_problems(situation.checkpoint, situation.gpu, situation.task, checked.values)
    image, nodes = situation.image, situation.machines.nodes
    start = EngineStart(image, engine.cuda(image), situation.gpu, nodes, checked.values)
    problems += engine.start_problems(situation.checkpoint, start)
    if problems:
        return "; ".join(problems)
    certainty = _certainty(situation, [*before, *new])
    if certainty < CERTAIN and certainty < _certainty(situation, before):
        return "the model would not fit into the memory of the GPUs with it"
    return None


def _certainty(situation: Situation, chosen: Sequence[str]) -> int:
    """That of the memory; the highest where it is not known."""
    if situation.gpu is None:
        return CERTAIN
    layout, values = situation.effective(chosen)
    rank_memory = memory_of(situation.checkpoint, situation.gpu, situation.engine, dtype=situation.dtype)
    return rank_memory(layout, values).certainty


def _line(words: Sequence[str], why: str, rule: ArgumentRule) -> str:
    return f"{' '.join(words)} is left out: {why}. It is for: {rule.reason[0].lower()}{rule.reason[1:]}"


def _offer(words: Sequence[str], rule: ArgumentRule) -> str:
    reason = f"{rule.reason[0].lower()}{rule.reason[1:]}"
    return f"{' '.join(words)} is offered, not chosen: {reason} To use it, add it to engine_args."
