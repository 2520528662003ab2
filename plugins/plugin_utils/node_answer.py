"""What a node reports, proven: the one way of a node's answer into the result of an action.

ansible-core obeys keys of an action's result: `add_host` and `add_group` change the inventory,
`ansible_facts` and `ansible_stats` speak for other hosts, `_ansible_*` are its own. A result has what a
specification names.

A specification maps names to their types, like an argument_spec: `{type, elements, options, choices,
required, nullable, min, max, pattern}`, or a type alone. Types are str, int, float, bool, list and dict;
nothing is converted. A dict has `options` (its names) or `elements` (the type of each value); a list has
`elements`. Names are required, but for those with `required: false`. `max` limits characters, items, or
names; `min` and `max` limit a number; `pattern` is what the whole text, or each name of a dict, matches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

Spec = Mapping[str, Any]
# The texts are what ansible-core adds where a module could not run at all.
FAILURE: Spec = {
    "failed": "bool",
    **{name: {"type": "str", "required": False} for name in ("msg", "module_stdout", "module_stderr")},
}
MAX_JSON = 16 << 20  # characters
MAX_TEXT = 1 << 20  # characters
MAX_ITEMS = 100_000
MAX_NAME = 1024  # characters of a name that no specification has
MAX_NUMBER = 2**63 - 1
_SHOWN = 60  # characters of a value in an error


def checked(answer: Any, spec: Spec, *, host: str, what: str) -> dict[str, Any]:
    """The answer, where it has the names of `spec` and no others; AnsibleActionFail naming the host."""
    try:
        return named(answer, spec)
    except ValueError as error:
        raise AnsibleActionFail(
            f"{what}: the answer of {host} is refused: {error}. No program of this version sends that; "
            f"check what runs on {host}."
        ) from None


def named(answer: Any, spec: Spec) -> dict[str, Any]:
    """As `checked`, but for ValueError, where the caller names the host."""
    return _names(answer, spec, "")


def of_module(result: Mapping[str, Any], spec: Spec, *, host: str, what: str) -> dict[str, Any]:
    """What `spec` names of a module's result, and of a failure what FAILURE names.

    ansible-core adds keys of its own to what the module printed, so others are left out, not refused.
    """
    names = FAILURE if result.get("failed") else spec
    return checked({name: result[name] for name in names if name in result}, names, host=host, what=what)


def parsed(text: str) -> dict[str, Any]:
    """The JSON object in what a node printed; ValueError where it is none, too long or nested too deep."""
    if len(text) > MAX_JSON:
        raise ValueError(f"JSON of more than {MAX_JSON} characters")
    try:
        document = json.loads(text)
    except RecursionError:
        raise ValueError("JSON that is nested too deep") from None
    if not isinstance(document, dict):
        raise ValueError("JSON that is not an object")
    return document


def printable(text: str) -> str:
    """The text without what controls a terminal."""
    if text.isprintable():
        return str(text)
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)


def _names(value: Any, spec: Spec, where: str) -> dict[str, Any]:
    _require(isinstance(value, dict), where, "an object", value)
    if unknown := [name for name in value if name not in spec]:
        place = f" in {where}" if where else ""
        raise ValueError(f"it has {quoted(unknown[0])}{place}, which nothing here reads")
    document = {}
    for name, kind in spec.items():
        rule = {"type": kind} if isinstance(kind, str) else kind
        place = f"{where}.{name}" if where else name
        if name in value:
            document[name] = _value(value[name], rule, place)
        elif rule.get("required", True):
            raise ValueError(f"it has no {place}")
    return document


def _value(value: Any, rule: Spec, where: str) -> Any:
    if value is None and rule.get("nullable"):
        return None
    checked_value = _TYPES[rule["type"]](value, rule, where)
    if "choices" in rule and checked_value not in rule["choices"]:
        raise ValueError(f"{where} is none of {', '.join(map(str, rule['choices']))}: {quoted(value)}")
    return checked_value


def _text(value: Any, rule: Spec, where: str) -> str:
    most = rule.get("max", MAX_TEXT)
    _require(
        isinstance(value, str) and len(value) <= most, where, f"text of at most {most} characters", value
    )
    _require_match(value, rule, where)
    return printable(value)


def _number(value: Any, rule: Spec, where: str) -> int | float:
    least, most = rule.get("min", -MAX_NUMBER), rule.get("max", MAX_NUMBER)
    kind, words = (int, "an integer") if rule["type"] == "int" else ((int, float), "a number")
    number = isinstance(value, kind) and not isinstance(value, bool)
    # Not a number is within no limits.
    _require(number and least <= value <= most, where, f"{words} from {least} to {most}", value)
    return int(value) if kind is int else float(value)


def _flag(value: Any, rule: Spec, where: str) -> bool:
    _require(isinstance(value, bool), where, "true or false", value)
    return bool(value)


def _list(value: Any, rule: Spec, where: str) -> list[Any]:
    most = rule.get("max", MAX_ITEMS)
    right = isinstance(value, list) and len(value) <= most
    _require(right, where, f"a list of at most {most} items", value)
    return [_value(item, _elements(rule), f"{where}[{number}]") for number, item in enumerate(value)]


def _table(value: Any, rule: Spec, where: str) -> dict[str, Any]:
    if "options" in rule:
        return _names(value, rule["options"], where)
    most = rule.get("max", MAX_ITEMS)
    _require(
        isinstance(value, dict) and len(value) <= most, where, f"an object of at most {most} names", value
    )
    long = [name for name in value if len(name) > MAX_NAME]
    _require(not long, where, f"an object with names of at most {MAX_NAME} characters", value)
    for name in value:
        _require_match(name, rule, f"a name of {where}")
    return {printable(name): _value(item, _elements(rule), where) for name, item in value.items()}


_TYPES: dict[str, Callable[[Any, Spec, str], Any]] = {
    "str": _text,
    "int": _number,
    "float": _number,
    "bool": _flag,
    "list": _list,
    "dict": _table,
}


def _elements(rule: Spec) -> Spec:
    """The rule of each item of a list or a table; `options` beside it are those of dicts in a list."""
    kind = rule["elements"]
    if not isinstance(kind, str):
        return dict(kind)
    return {"type": kind, **({"options": rule["options"]} if "options" in rule else {})}


def _require(right: bool, where: str, expected: str, value: Any) -> None:
    if not right:
        raise ValueError(f"{where or 'it'} is not {expected}: {quoted(value)}")


def _require_match(text: str, rule: Spec, where: str) -> None:
    pattern = rule.get("pattern", "")
    _require(not pattern or bool(re.fullmatch(pattern, text)), where, f"text like {pattern}", text)


def quoted(value: Any) -> str:
    """A value in an error; neither its length nor its depth matters."""
    if isinstance(value, (list, dict)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        return "a larger number"
    text = printable(str(value)).replace("\n", "?")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
