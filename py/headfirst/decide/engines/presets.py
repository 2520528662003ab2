"""An engine's presets: which arguments suit which models, as data in engines/<name>/presets.yml.

Each rule has the reason and the source of its choice; decide/plan/presets.py applies them. An engine without
the file has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from headfirst.decide.model.task import Task

Preset = Literal["latency", "throughput", "long-context"]
# What a rule may require: of the model, of the layout, of the hardware.
Need = Literal["moe", "mla", "draft_layers", "one_stage", "one_node", "several_ranks", "gpu"]


def _text(value: Any) -> Any:
    """YAML reads 3 as a number and `true` as a flag without a value; arguments are words."""
    if value is True:
        return ""
    return str(value) if isinstance(value, int | float) else value


Value = Annotated[str, BeforeValidator(_text)]


class Rule(BaseModel):
    """Arguments that are chosen together.

    Values may hold `{tensor}`, the tensor parallel size, and `{context}`, the model's longest context in
    tokens; "" is a flag without a value. With `always` the rule does not wait for `preset` or `parsers`:
    the task does not work without it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    arguments: Annotated[dict[str, Value], Field(min_length=1)]
    families: tuple[str, ...] = ()  # names of model/families.json; empty: every model
    tasks: tuple[Task, ...] = ("chat", "vision")
    presets: tuple[Preset, ...] = ()  # empty: a parser, chosen with every preset and with parsers=auto
    needs: tuple[Need, ...] = ()
    capability: tuple[int, int] | None = None  # the lowest compute capability
    always: bool = False
    reason: Annotated[str, Field(min_length=10)]
    source: Annotated[str, Field(min_length=10)]


class Quantization(BaseModel):
    """How the engine quantises an unquantised checkpoint while it loads it, to `dtype`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: str
    arguments: Annotated[dict[str, Value], Field(min_length=1)]
    capability: tuple[int, int]  # the lowest compute capability
    source: Annotated[str, Field(min_length=10)]


class _Presets(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    rules: tuple[Rule, ...] = ()
    quantize_on_load: tuple[Quantization, ...] = ()


def rules(engine: str) -> tuple[Rule, ...]:
    """The rules of the engine, in the order in which they are applied; the first that sets a flag decides."""
    return _presets(engine).rules


def quantizations(engine: str) -> tuple[Quantization, ...]:
    """What the engine can quantise to while it loads, the most precise first."""
    return _presets(engine).quantize_on_load


def words(arguments: Mapping[str, str]) -> list[str]:
    """The arguments as a command line has them."""
    return [word for flag, value in arguments.items() for word in ([flag, value] if value else [flag])]


@cache
def _presets(engine: str) -> _Presets:
    import yaml

    path = files(f"headfirst.decide.engines.{engine}").joinpath("presets.yml")
    if not path.is_file():
        return _Presets()
    return _Presets.model_validate(yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))
