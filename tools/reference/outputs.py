"""The page and the JSON schemas of what `deploy VERB --json` prints, from the types that print it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, get_args

from headfirst.control.accuracy.comparison import AccuracySummary
from headfirst.control.bench.result import BenchResult
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.measuring.tune import Tuned
from headfirst.control.deployment.verbs.events import EventHistory
from headfirst.control.deployment.verbs.models import Refresh
from headfirst.control.deployment.verbs.webui_backups import Backup
from headfirst.control.lab.types import NodeStatus
from headfirst.control.live.status_types import ClusterStatus
from headfirst.control.live.watch import Snapshot
from headfirst.control.rehearsal.result import Rehearsed
from headfirst.control.report.types import ClusterReport
from headfirst.control.run.comm import Comm
from headfirst.control.smoke.verdict import SmokeReport
from headfirst.decide.diagnose.types import Diagnosis, ReplicaDiagnosis, Tuning
from headfirst.decide.plan.sizing.models import Models
from headfirst.decide.plan.types import Plan
from pydantic import BaseModel, TypeAdapter

from reference import comments
from reference.text import cell, generated

INTRODUCTION = """\
`--json` prints one object, or one object a line where a verb reports while it works. Fields may be added;
none is removed or changes its meaning without a new major version. The links lead to the fields.

Each of these types has a JSON schema. `headfirst-VERSION-schemas.json`, a file of each
[release](../release.md), has all of them by name; on the site, the section of a type links its schema.
"""


@dataclass(frozen=True)
class VerbOutput:
    """What `verb` prints; `shape` places the value of type `kind`, which has a schema of its own."""

    verb: str
    shape: str
    kind: Any = None


OUTPUTS = (
    VerbOutput("deploy plan", "{}; with `--bundle` also `bundle`", Plan),
    VerbOutput("deploy status", "{}", ClusterStatus),
    VerbOutput("deploy top", "every interval a line with {}", Snapshot),
    VerbOutput("deploy models", "{}", Models),
    VerbOutput("deploy models --refresh", "{}", Refresh),
    VerbOutput("deploy check --comm", "[events](../json-events.md), then `event` `comm` with {}", Comm),
    VerbOutput("deploy rehearse", "[events](../json-events.md), then {}", Rehearsed),
    VerbOutput("deploy diagnose", "`ready`, and `replicas`: a list of {}", ReplicaDiagnosis),
    VerbOutput("deploy diagnose --log FILE…", "{}", Diagnosis),
    VerbOutput("deploy diagnose --tuning", "{}", Tuning),
    VerbOutput("deploy report", "{}", ClusterReport),
    VerbOutput("deploy events", "{}", EventHistory),
    VerbOutput("deploy test", "{}", SmokeReport),
    VerbOutput("deploy test --accuracy DATA", "{}", AccuracySummary),
    VerbOutput("deploy test --list", "a list of objects with `case` and `title`"),
    VerbOutput(
        "deploy bench",
        "`folder` and {}; with `--slo` also `slo`, with `--compare` also `compared`",
        BenchResult,
    ),
    VerbOutput("deploy bench --engines NAME,…", "`folder`, and `runs`: a list of {}", BenchResult),
    VerbOutput("deploy tune", "`folder`, `engine_args` and {}", Tuned),
    VerbOutput(
        "deploy credentials",
        "{}, without `named_keys`, `local_ca` and what is not set, and `engine_admin_key`; with "
        "`api_key_file` also `api_key_files`, their paths by service",
        Secrets,
    ),
    VerbOutput(
        "deploy credentials --service NAME",
        "`service`, `api_key`, `api`: a list of addresses; `api_key_file`, where the key is from one",
    ),
    VerbOutput("deploy keys add", "`event` `key added`, `name`, `key`, `urls`"),
    VerbOutput("deploy keys list", "a list of objects with `name` and the limits of the key"),
    VerbOutput("deploy keys revoke", "`event` `key revoked`, `name`"),
    VerbOutput("deploy backup", "`backup`: its name, and `backups`: a list of {}", Backup),
    VerbOutput("deploy restore", "`restored`: the name of the backup"),
    VerbOutput("deploy restore --list", "a list of {}", Backup),
    VerbOutput("deploy lab status", "a list of {}", NodeStatus),
    VerbOutput(
        "deploy render", "`to`, `files`: a list of objects with `path`, `mode`, `text`; `left_out`, `older`"
    ),
    VerbOutput(
        "deploy variables", "a list of objects with `name`, `scope`, `default`, `description`, `decided`"
    ),
    VerbOutput("deploy release", "`event` `released`, `hosts`, `left`"),
)
# Verbs that print what happens, line by line.
EVENTS = {
    "deploy up": "`summary`: `changed`, `served`, `chat_page`, `services`, `credentials`, `stages`",
    "deploy bundle": "`bundle`: `path`, `id`, `since`, `bytes`, `files`, `images`, `systems`, `kinds`, "
    "`kept`, `signed`, `notes`",
    "deploy check": "`checked`: `ready`, `warnings`",
    "deploy down": "`down`: `changed`, `data_removed`; with `--service` also `service`, and `kept`: what "
    "still refers to it (`chat_page`, `proxy`, `monitoring`)",
    "deploy rollback": "`rollback`: `versions` (by service; null: unchanged, it has none)",
    "deploy replace": "the summary of `deploy up`, after `inventory_changes`: `host`, `diff`",
    "deploy remove": "the summary of `deploy up`, after `inventory_changes`: `host`, `diff`",
    "deploy lab up": "none",
    "deploy lab down": "none",
}


def page() -> str:
    """What each verb prints, then every type with its fields."""
    lines = [
        generated("JSON output", "the types that verbs print"),
        INTRODUCTION,
        "| verb | prints |",
        "|---|---|",
        *(f"| `{output.verb}` | {output.shape.format(_link(output.kind))} |" for output in OUTPUTS),
        *(
            f"| `{verb}` | [events](../json-events.md); the last line: {last} |"
            for verb, last in EVENTS.items()
        ),
        "",
    ]
    described: dict[str, Any] = {}
    for title, schema in schemas().items():
        described |= {title: schema, **schema.get("$defs", {})}
    for name, schema in sorted(described.items()):
        if "properties" in schema:
            lines += [f"## {name}", "", cell(schema.get("description", "")), "", *_table(schema), ""]
    return "\n".join(lines).rstrip() + "\n"


def schemas() -> dict[str, dict[str, Any]]:
    """The JSON schema of each type that a verb prints, by its name."""
    return {output.kind.__name__: _schema(output.kind) for output in OUTPUTS if output.kind}


def _schema(kind: Any) -> dict[str, Any]:
    """The JSON schema of a type, with the comments of its fields."""
    schema = TypeAdapter(kind).json_schema(mode="serialization")
    for name, part in _types().items():
        defined = schema if name == kind.__name__ else schema.get("$defs", {}).get(name)
        for field, text in _comments(part).items() if defined else ():
            defined["properties"].get(field, {}).setdefault("description", text)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _link(kind: Any) -> str:
    name = getattr(kind, "__name__", "")
    return f"[{name}](#{name.lower()})"


def _types() -> dict[str, Any]:
    """The types that are printed and those of their fields, by name."""
    types: dict[str, Any] = {}
    waiting = [output.kind for output in OUTPUTS if output.kind]
    while waiting:
        kind = waiting.pop()
        if types.setdefault(kind.__name__, kind) is not kind:
            raise ValueError(f"two types are called {kind.__name__}")
        waiting += [
            part for hint in _hints(kind).values() for part in _parts(hint) if part.__name__ not in types
        ]
    return types


def _hints(kind: Any) -> Mapping[str, Any]:
    if issubclass(kind, BaseModel):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    return inspect.get_annotations(kind, eval_str=True)


def _parts(hint: Any) -> Iterator[Any]:
    """The types with fields that a hint names."""
    if inspect.isclass(hint) and (issubclass(hint, BaseModel) or is_dataclass(hint)):
        yield hint
    for argument in get_args(hint):
        yield from _parts(argument)


def _table(schema: Mapping[str, Any]) -> list[str]:
    rows = [
        f"| `{name}` | {cell(_named(field))} | {cell(field.get('description', ''))} |"
        for name, field in schema["properties"].items()
    ]
    return ["| field | type | meaning |", "|---|---|---|", *rows]


def _named(schema: Mapping[str, Any]) -> str:
    """A type as a person reads it: `list of Node`, `number`, `text or null`."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_named, schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("type", "anything")
    if kind == "array":
        parts = schema.get("prefixItems")
        return f"list of {_named(schema['items'])}" if parts is None else f"[{', '.join(map(_named, parts))}]"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_named(schema['additionalProperties'])}"
    return "text" if kind == "string" else str(kind)


def _comments(kind: Any) -> dict[str, str]:
    """Field → its description, or the comment behind it."""
    owners = [owner for owner in reversed(kind.__mro__) if owner is kind or issubclass(owner, BaseModel)]
    texts: dict[str, str] = {}
    for owner in owners:
        texts |= {} if owner is BaseModel else comments.of_fields(owner)
    described = {name: field.description for name, field in getattr(kind, "model_fields", {}).items()}
    return texts | {name: text for name, text in described.items() if text}
