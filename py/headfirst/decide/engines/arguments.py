"""An engine's command line as data: what its own parser has, and a check of arguments without the engine.

The options are those of the engine's Answers: flags, dest, type, and where they apply nargs, choices, const,
none (the text "None" is a value), repeat (may be given again), keys (of a JSON object), negative (the flags
that store False). Types are flag and those of _TYPES. removed.json maps a flag of older versions to
`between`, the two versions between which it went, and `instead`: its successor (flag, with its value where
that is fixed), or null. `why` replaces the sentence where a successor alone would mislead.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headfirst.common.errors import InputError
from headfirst.common.untrusted import finite_json
from headfirst.decide.engines.answers import Answers
from headfirst.decide.package_data import read_json

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_WITH_UNIT = re.compile(r"(\d{1,19}(?:\.\d+)?)([A-Za-z]+)")
_LARGEST, _MOST_RANKS = 2**63 - 1, 4096
# Units of the types `size` and `human_int`. A number of decimal ones may have a fraction.
_SIZES = {unit: 1000**power for power, unit in enumerate("kmgt", 1)}
_SIZES |= {unit: 1024**power for power, unit in enumerate("KMGT", 1)}
_HUMAN = {unit: 1000**power for power, unit in enumerate("kMGT", 1)}
_HUMAN |= {f"{unit}i": 1024**power for power, unit in enumerate("KMGT", 1)}
# Flags of one purpose in different engines; values and defaults may differ.
_COUNTERPARTS = (
    ("--api-key", "--api-keys"),
    ("--chunked-prefill-size", "--max-num-batched-tokens", "--max-prefill-token-num"),
    ("--context-length", "--max-model-len", "--session-len"),
    ("--cuda-graph-max-bs-decode", "--max-cudagraph-capture-size"),
    ("--disable-cuda-graph", "--enforce-eager", "--eager-mode"),
    ("--disable-radix-cache", "--no-enable-prefix-caching"),
    ("--dp-size", "--data-parallel-size", "--dp"),
    ("--ep-size", "--enable-expert-parallel", "--ep"),
    ("--json-model-override-args", "--hf-overrides"),
    ("--kv-cache-dtype", "--quant-policy"),
    ("--limit-mm-data-per-request", "--limit-mm-per-prompt"),
    ("--lora-paths", "--lora-modules"),
    ("--max-running-requests", "--max-num-seqs", "--max-batch-size"),
    ("--mem-fraction-static", "--gpu-memory-utilization", "--cache-max-entry-count"),
    ("--mm-process-config", "--mm-processor-kwargs"),
    ("--moe-runner-backend", "--moe-backend"),
    ("--page-size", "--block-size", "--cache-block-seq-len"),
    ("--quantization", "--model-format"),
    ("--random-seed", "--seed"),
    ("--served-model-name", "--model-name"),
    ("--speculative-algorithm", "--speculative-config"),
    ("--tokenizer-path", "--tokenizer"),
    ("--tp-size", "--tensor-parallel-size", "--tp"),
)

# What of an option another version may have more of.
_LISTS = ("choices", "keys", "registered")
# Flags of programs that start an engine, and what an inventory has instead.
_OF_LAUNCHERS = {"--backend": "Set engine in the inventory."}


@dataclass(frozen=True)
class ArgumentProblem:
    """One thing wrong with an argument: what, and the nearest thing that would be right."""

    what: str
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.what} {self.hint}" if self.hint else self.what


@dataclass(frozen=True)
class RefusedOption:
    """An option with which the engine starts and the service does not answer as clients and checks need it.

    `why` is one sentence or two, with what to write instead. `harmless` is whether a value changes nothing.
    """

    why: str
    harmless: Callable[[Any], bool] = operator.not_
    what: str = "cannot be used here"


def within(low: float, high: float = 2**40) -> RefusedOption:
    """A number, or each of a list, that the engine accepts or with which the plan's sizes have a meaning."""

    def harmless(value: Any) -> bool:
        numbers = value if isinstance(value, list) else [value]
        return all(number is None or low <= number <= high for number in numbers)

    return RefusedOption(f"Write a number from {low} to {high}.", harmless, what="is out of range")


def _is_object(value: Any) -> bool:
    try:
        return isinstance(finite_json(value) if isinstance(value, str) else value, dict)
    except ValueError:
        return False


OBJECT = RefusedOption("Write a JSON object.", _is_object, what="has a value of another type")


def object_of(texts: Sequence[str], counts: Sequence[str]) -> RefusedOption:
    """A JSON object in which these keys are texts, and these whole numbers from 1, where they are set."""

    def harmless(value: Any) -> bool:
        return value is None or (
            isinstance(value, dict)
            and all(isinstance(value.get(key), str | None) for key in texts)
            and all(value.get(key) is None or _is_count(value[key]) for key in counts)
        )

    listed = f"{', '.join(texts)} as texts and {', '.join(counts)} from 1 to {_MOST_RANKS}"
    return RefusedOption(f"Write a JSON object with {listed}.", harmless, what="has a value of another type")


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= _MOST_RANKS


def whole(settings: Mapping[str, Any], key: str, default: int) -> int:
    """A number inside a JSON object of the arguments, as int() reads it. InputError for what is none."""
    try:
        number = int(settings.get(key, default))
    except (TypeError, ValueError, OverflowError):
        number = -1
    if not 0 <= number <= _LARGEST:
        raise InputError(
            f"{key} in engine_args is not a whole number: {settings[key]!r}",
            hint="Write a number, without quotes, in the JSON object.",
        )
    return number


Values = Mapping[str, Any]
"""Values of arguments: destination name -> typed value."""
Option = Mapping[str, Any]
"""An option as decide/engines/answers.py has it."""


@dataclass(frozen=True)
class Arguments:
    """The user's engine arguments, understood: destination name -> typed value, and what is wrong."""

    values: Values
    problems: tuple[ArgumentProblem, ...]
    unknown: tuple[str, ...] = ()  # flags that another version may have

    def require(self, *, where: str | None = None) -> Values:
        """The values; InputError listing every problem when there is one."""
        if self.problems:
            raise InputError(
                " ".join(problem.what for problem in self.problems),
                where=where,
                hint=" ".join(dict.fromkeys(each.hint for each in self.problems if each.hint))
                or "Leave it out.",
            )
        return self.values


@dataclass(frozen=True)
class Specification:
    """The options of one engine.

    `removed` maps a flag of an older version to what to write instead; `owned` maps a destination to the
    sentence that states where the plan takes it from, `refused` to why its value is refused, and `bounds` to
    the numbers that it takes.
    """

    engine: str
    options: Mapping[str, Option]  # by flag
    removed: Mapping[str, str]
    owned: Mapping[str, str]
    refused: Mapping[str, RefusedOption] = field(default_factory=dict)
    bounds: Mapping[str, RefusedOption] = field(default_factory=dict)
    guessed: bool = False  # it may have others


def load(
    answers: Answers,
    title: str,
    owned: Mapping[str, str],
    refused: Mapping[str, RefusedOption] | None = None,
    bounds: Mapping[str, RefusedOption] | None = None,
) -> Specification:
    """The specification of the engine that answered; `title` is its name in messages."""
    removed = read_json(f"{__package__}.{answers.engine}", "removed.json")["flags"]
    options = answers.by_flag
    if answers.guessed:
        options = {
            flag: {key: value for key, value in option.items() if key not in _LISTS}
            for flag, option in options.items()
        }
    return Specification(
        engine=f"{title} {answers.version}",
        options=options,
        guessed=answers.guessed,
        removed={flag: _advice(entry) for flag, entry in removed.items()},
        owned=owned,
        refused=refused or {},
        bounds=bounds or {},
    )


def _advice(entry: Mapping[str, Any]) -> str:
    older, newer = entry["between"]
    gone = f"It was removed between {older} and {newer}"
    if why := entry.get("why"):
        return f"{gone}: {why}"
    instead = entry["instead"]
    return f"{gone}; write {instead}." if instead else f"{gone} without a successor; leave it out."


def check(spec: Specification, arguments: Sequence[str]) -> Arguments:
    """Read `arguments` as the engine's parser would, and report everything that it would refuse.

    Abbreviated flags are refused too: the next release may have a second flag with the same beginning.
    """
    values: dict[str, Any] = {}
    problems: list[ArgumentProblem] = []
    unknown: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not is_flag(word):
            problems.append(ArgumentProblem(f"{word!r} is in the place of a flag.", "Flags start with '--'."))
            continue
        flag, has_value, attached = word.partition("=")
        words_of_value = [attached] if has_value else []
        while not has_value and rest and not is_flag(rest[0]):
            if _full(spec.options.get(flag), words_of_value):
                break
            words_of_value.append(rest.pop(0))
        option = spec.options.get(flag)
        if option is None and spec.guessed and not _means_owned(spec, flag):
            unknown.append(flag)
        elif option is None:
            problems.append(_flag_problem(spec, flag, values))
        elif problem := (
            _owned(spec, option, flag, values)
            or _store(option, flag, words_of_value, values)
            or _refused(spec, option, flag, values)
        ):
            problems.append(problem)
    return Arguments(values=values, problems=tuple(problems), unknown=tuple(unknown))


def counterpart(spec: Specification, flag: str) -> str | None:
    """The option of `spec` that does what `flag` does in another engine; None where none is known."""
    rows = (row for row in _COUNTERPARTS if flag in row)
    return next((other for row in rows for other in row if other in spec.options), None)


def each(arguments: Sequence[str]) -> list[list[str]]:
    """Each flag with the words of its value."""
    divided: list[list[str]] = []
    for word in arguments:
        if is_flag(word) or not divided:
            divided.append([])
        divided[-1].append(word)
    return divided


def is_flag(word: str) -> bool:
    """Whether `word` begins an option: argparse takes a number with a minus, and "-" alone, as values."""
    return word.startswith("-") and len(word) > 1 and not _NUMBER.fullmatch(word)


def _full(option: Option | None, words: Sequence[str]) -> bool:
    """Whether the option takes no further word."""
    if option is None:
        return False  # an unknown flag swallows its words, so that they are not reported again
    if option["type"] == "flag":
        return True
    return option.get("nargs") in (None, "?") and len(words) == 1


def _flag_problem(spec: Specification, flag: str, values: Values) -> ArgumentProblem:
    if flag in spec.removed:
        return ArgumentProblem(f"{flag} was removed: {spec.engine} does not have it.", spec.removed[flag])
    if (other := counterpart(spec, flag)) and not other.startswith(flag):  # else it is cut short
        advice = spec.owned.get(spec.options[other]["dest"], f"Its counterpart is {other}.")
        return ArgumentProblem(f"{spec.engine} has no {flag}.", advice)
    if flag in _OF_LAUNCHERS:
        return ArgumentProblem(f"{spec.engine} has no {flag}.", _OF_LAUNCHERS[flag])
    if meant := _with_two_dashes(spec, flag):
        instead = spec.owned.get(spec.options[meant]["dest"])
        hint = f"{meant} is set by the plan. {instead}" if instead else f"Write {meant}."
        return ArgumentProblem(f"{spec.engine} has no {flag}: long flags start with two dashes.", hint)
    longer = [known for known in spec.options if known.startswith(flag)] if len(flag) > 3 else []
    dests = {spec.options[known]["dest"] for known in longer}
    if len(dests) == 1:
        owned = _owned(spec, spec.options[longer[0]], flag, values)
        return owned or ArgumentProblem(f"{flag} is cut short.", f"Write {longer[0]}.")
    near = difflib.get_close_matches(flag.replace("_", "-"), spec.options, n=1, cutoff=0.75)
    return ArgumentProblem(f"{spec.engine} has no {flag}.", f"Did you mean {near[0]}?" if near else None)


def _means_owned(spec: Specification, flag: str) -> bool:
    """Whether the flag stands for one that the plan sets: cut short, or as another engine writes it."""
    longer = (known for known in spec.options if known.startswith(flag))
    meant = (counterpart(spec, flag), _with_two_dashes(spec, flag), *longer)
    return any(known and spec.options[known]["dest"] in spec.owned for known in meant)


def _with_two_dashes(spec: Specification, flag: str) -> str | None:
    """The flag that was written with one dash, in full or by its first word: -tp is --tp-size."""
    if flag.startswith("--") or len(flag) < 3:
        return None
    near = [f"-{flag}", f"-{flag}-size"]
    return next((known for known in near if known in spec.options), None)


def _owned(spec: Specification, option: Option, flag: str, values: Values) -> ArgumentProblem | None:
    if option["dest"] in spec.owned:
        return ArgumentProblem(f"{flag} is set by the plan.", spec.owned[option["dest"]])
    if option["dest"] in values and not option.get("repeat"):
        return ArgumentProblem(f"{flag} is given twice.", "Keep one of them.")
    return None


def _refused(spec: Specification, option: Option, flag: str, values: Values) -> ArgumentProblem | None:
    refused = spec.refused.get(option["dest"]) or spec.bounds.get(option["dest"])
    if refused is None or refused.harmless(values[option["dest"]]):
        return None
    return ArgumentProblem(f"{flag} {refused.what}.", refused.why)


def _store(option: Option, flag: str, words: Sequence[str], values: dict[str, Any]) -> ArgumentProblem | None:
    """Put the typed value into `values`, or report why the engine would refuse it."""
    dest, nargs = option["dest"], option.get("nargs")
    if option["type"] == "flag":
        if words:
            return ArgumentProblem(f"{flag} takes no value, but {words[0]!r} is given.")
        negative = flag in option["negative"] if "negative" in option else flag.startswith("--no-")
        values[dest] = option.get("const", not negative)
        return None
    if not words and nargs not in ("*", "?"):
        return ArgumentProblem(f"{flag} needs a value.", _expected(option))
    typed: list[Any] = []
    for text in words:
        if option.get("none") and text in ("", "None"):
            typed.append(None)
            continue
        try:
            typed.append(_type(option)[0](text))
        except ValueError:
            return ArgumentProblem(f"{flag} cannot take {text!r}.", _expected(option))
        if problem := _keys(option, flag, typed[-1]):
            return problem
        if "choices" in option and typed[-1] not in option["choices"]:
            near = difflib.get_close_matches(text, map(str, option["choices"]), n=1, cutoff=0.5)
            choices = f"Its values are {', '.join(map(str, option['choices']))}."
            hint = f"Did you mean {near[0]}? {choices}" if near else choices
            return ArgumentProblem(f"{flag} cannot be {text!r}.", hint)
    if option.get("repeat"):
        values.setdefault(dest, []).append(typed[0])
    elif nargs is None:
        values[dest] = typed[0]
    elif nargs == "?":
        values[dest] = typed[0] if typed else True
    else:
        values[dest] = typed
    return None


def _keys(option: Option, flag: str, value: Any) -> ArgumentProblem | None:
    """What the engine would refuse about the keys of a JSON object."""
    if "keys" not in option:
        return None
    unknown = [key for key in value if key not in option["keys"]]
    if not unknown:
        return None
    near = difflib.get_close_matches(unknown[0], option["keys"], n=1, cutoff=0.6)
    hint = f"Did you mean {near[0]}?" if near else f"Its keys are {', '.join(option['keys'])}."
    return ArgumentProblem(f"{flag} has no key {unknown[0]!r}.", hint)


def _expected(option: Option) -> str:
    if "choices" in option:
        return f"Its values are {', '.join(map(str, option['choices']))}."
    _, kind = _type(option)
    quotes = """ Write both kinds of quotes: '{"key": "value"}'.""" if "JSON" in kind else ""
    return f"It takes {kind}.{quotes}"


def size(text: str) -> int:
    """A number with a suffix: 8k is 8000, 8K is 8192; ValueError otherwise."""
    return _with_unit(text, _SIZES)


def _with_unit(text: str, units: Mapping[str, int]) -> int:
    match = _WITH_UNIT.fullmatch(text.strip())
    if match is None or match[2] not in units:
        return _whole(text)
    number, unit = match[1], units[match[2]]
    return _bounded(int(float(number) * unit) if unit % 1000 == 0 else int(number) * unit)


def _whole(text: str) -> int:
    return _bounded(int(text))


def _bounded(number: int) -> int:
    """What the engines keep in 64 bits."""
    if abs(number) > _LARGEST:
        raise ValueError("too large")
    return number


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("not a number to compute with")
    return number


def _size_or_auto(text: str) -> int:
    return -1 if text.strip().lower() == "auto" else size(text)


def _config(text: str) -> dict[str, Any]:
    """A JSON object, in which numbers may have a suffix."""
    parts = re.split(r'("(?:[^"\\]|\\.)*")', text)
    parts[::2] = [
        re.sub(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b", lambda m: str(size(m[0])), part) for part in parts[::2]
    ]
    value = finite_json("".join(parts))
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _json_or_str(text: str) -> Any:
    return finite_json(text) if re.fullmatch(r"\s*{.*}\s*", text, re.DOTALL) else text


# Of each type: how a text is read, and what it is for people.
_TYPES: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "str": (str, "a text"),
    "snake": (lambda text: text.lower().replace("-", "_"), "a text"),
    "int": (_whole, "a whole number"),
    "float": (_finite, "a number"),
    "human_int": (lambda text: _with_unit(text, _HUMAN), "a number such as 8192 or 8Ki"),
    "size": (size, "a number such as 8192 or 8k"),
    "size_or_auto": (_size_or_auto, "a number such as 8192 or 8k, or auto"),
    "json": (finite_json, "JSON"),
    "json_or_str": (_json_or_str, "JSON"),
    "config": (_config, "a JSON object"),
}


def _type(option: Option) -> tuple[Callable[[str], Any], str]:
    return _TYPES.get(option["type"], _TYPES["str"])
