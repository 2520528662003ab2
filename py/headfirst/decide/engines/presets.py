"""An engine's presets: which arguments suit which models, as data in engines/<name>/presets.yml.

Each rule has the reason and the source of its choice; decide/plan/presets.py applies them. An engine without
the file has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from headfirst.decide.frozen import Frozen
from headfirst.decide.hardware.gpus import capability_text
from headfirst.decide.model.task import Task

Preset = Literal["latency", "throughput", "long-context"]
# What a rule may require: of the model, of the layout, of the hardware.
Need = Literal[
    "moe",
    "draft_layers",
    "longrope",
    "kv_16_bit",
    "one_stage",
    "one_node",
    "several_ranks",
    "shared_attention",
    "separate_attention",
    "gpu",
]
# What a model has or has not, and the plan states where no rule chooses it.
Purpose = Literal["reasoning", "tools", "drafts"]
# The destinations of the flags of each purpose, in every engine's arguments.
DESTINATIONS: Mapping[Purpose, frozenset[str]] = {
    "reasoning": frozenset({"reasoning_parser"}),
    "tools": frozenset({"tool_call_parser"}),
    "drafts": frozenset({"speculative_algorithm", "speculative_config", "spec_method"}),
}


def destination(flag: str) -> str:
    """The name of a flag's value among those of all arguments."""
    return flag.lstrip("-").replace("-", "_")


def _text(value: Any) -> Any:
    """YAML reads 3 as a number and `true` as a flag without a value; arguments are words."""
    if value is True:
        return ""
    return str(value) if isinstance(value, int | float) else value


Value = Annotated[str, BeforeValidator(_text)]


class ArgumentRule(Frozen):
    """Arguments that are chosen together.

    Values may hold `{tensor}`, the tensor parallel size, and `{context}`, the model's longest context in
    tokens; "" is a flag without a value. With `always` the rule does not wait for `preset` or `parsers`:
    the task does not work without it. `offered`: the arguments cost precision, or need what the plan does not
    check; the plan prints them and leaves the choice to a person.
    """

    arguments: Annotated[dict[str, Value], Field(min_length=1)]
    families: tuple[str, ...] = ()  # names of model/families.json; empty: every model
    tasks: tuple[Task, ...] = ("chat", "vision")
    presets: tuple[Preset, ...] = ()  # empty: a parser, chosen with every preset and with parsers=auto
    needs: tuple[Need, ...] = ()
    capability: tuple[int, int] | None = None  # the lowest compute capability
    major: int | None = None  # the only major compute capability
    always: bool = False
    offered: bool = False
    reason: Annotated[str, Field(min_length=10)]
    source: Annotated[str, Field(min_length=10)]

    def suits(self, capability: tuple[int, int]) -> bool:
        """Whether GPUs of this compute capability can do it."""
        reached = self.capability is None or capability >= self.capability
        return reached and self.major in (None, capability[0])

    @property
    def compute_capability(self) -> str:
        """What `suits` requires, as `8.9+` or `10.x`; "" where it requires nothing."""
        if self.major is not None:
            return f"{self.major}.x"
        return f"{capability_text(self.capability)}+" if self.capability else ""

    @property
    def purpose(self) -> Purpose | None:
        """What the rule's flags are for, where a plan states that it is missing."""
        names = set(map(destination, self.arguments))
        return next((purpose for purpose in DESTINATIONS if DESTINATIONS[purpose] & names), None)


LayoutNeed = Literal["moe", "dense", "copied_kv", "one_node"]


class LayoutRule(Frozen):
    """A way in which ranks share a model beside tensor and pipeline sizes.

    Values may hold `{tensor}`, the ranks that share a layer, `{groups}`, into how many groups these divide
    so that none keeps a copy of another's keys and values, `{chunk}`, 8192 tokens for each group, and
    `{copies}`, how often the ranks hold the weights: every divisor of their number is tried.
    `families` limits it to models. `presets`: it is preferred there; `always`: with every preset and without
    one. `fallback`: it is taken where plain sizes need more stages, or do not work at all. It works with one
    pipeline stage.
    """

    title: Annotated[str, Field(min_length=3)]
    arguments: Annotated[dict[str, Value], Field(min_length=1)]
    families: tuple[str, ...] = ()  # names of model/families.json; empty: every model
    needs: tuple[LayoutNeed, ...] = ()
    presets: tuple[Preset, ...] = ()
    always: bool = False
    fallback: bool = False
    reason: Annotated[str, Field(min_length=10)]
    source: Annotated[str, Field(min_length=10)]

    @property
    def copies_weights(self) -> bool:
        """Whether groups of ranks have the whole model each."""
        return any("{copies}" in value for value in self.arguments.values())

    @property
    def shares_kv(self) -> bool:
        """Whether groups of ranks serve requests of their own: their KV caches count together."""
        return self.copies_weights or "copied_kv" in self.needs


class Absence(Frozen):
    """Why an engine has no rule for something: a clause, printed where no rule applies."""

    what: Purpose | Preset
    families: tuple[str, ...] = ()  # names of model/families.json; empty: every model
    reason: Annotated[str, Field(min_length=10)]
    source: Annotated[str, Field(min_length=10)]


class LoadQuantization(Frozen):
    """How the engine quantises an unquantised checkpoint while it loads it, to `dtype`."""

    dtype: str
    arguments: Annotated[dict[str, Value], Field(min_length=1)]
    capability: tuple[int, int]  # the lowest compute capability
    source: Annotated[str, Field(min_length=10)]


class Reserve(Frozen):
    """Arguments with which the engine keeps less memory outside weights and KV cache, and what that costs."""

    arguments: Annotated[dict[str, Value], Field(min_length=1)]
    cost: Annotated[str, Field(min_length=10)]
    source: Annotated[str, Field(min_length=10)]


def _each(entries: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rules, and those of each group: they have its fields beside their own, its arguments in front."""
    for entry in entries:
        shared = {name: value for name, value in entry.items() if name != "rules"}
        for rule in entry.get("rules", [{}]):
            arguments = shared.get("arguments", {}) | rule.get("arguments", {})
            yield shared | rule | {"arguments": arguments}


class Presets(Frozen):
    """All entries of an engine's file, each list in the order in which its entries are tried."""

    layouts: Annotated[tuple[LayoutRule, ...], BeforeValidator(_each)] = ()
    rules: Annotated[
        tuple[ArgumentRule, ...], BeforeValidator(_each)
    ] = ()  # the first that sets a flag decides
    absences: tuple[Absence, ...] = ()
    quantize_on_load: tuple[LoadQuantization, ...] = ()  # the most precise first
    smaller_reserves: tuple[Reserve, ...] = ()  # the one that costs least first


def absence(engine: str, what: Purpose | Preset, family: str | None = None) -> str | None:
    """Why the engine has no rule for `what` and this family, or for every family where none is named.

    None where presets.yml has no reason.
    """
    for entry in of(engine).absences:
        if entry.what == what and (family in entry.families if family else not entry.families):
            return entry.reason
    return None


def words(arguments: Mapping[str, str]) -> list[str]:
    """The arguments as a command line has them."""
    return [word for flag, value in arguments.items() for word in ([flag, value] if value else [flag])]


def filled(arguments: Mapping[str, str], sizes: Mapping[str, int]) -> dict[str, str]:
    """The arguments with these sizes in place of their names; JSON values have braces of their own."""
    texts = {}
    for flag, text in arguments.items():
        for name, size in sizes.items():
            text = text.replace(name, str(size))
        texts[flag] = text
    return texts


@cache
def of(engine: str) -> Presets:
    """The presets of the engine called so."""
    import yaml

    path = files(f"headfirst.decide.engines.{engine}").joinpath("presets.yml")
    if not path.is_file():
        return Presets()
    return Presets.model_validate(yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))
