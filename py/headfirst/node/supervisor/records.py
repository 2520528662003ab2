"""What a node has on disk of its ranks: the records that the role `engine` writes, one a generation.

/etc/headfirst/NAME/GENERATION.json; the module container_generations documents the fields. A record that is
damaged, or of another version, counts as none and is reported in the journal, so no caller meets one.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from headfirst.common import container_names as names
from headfirst.common.metrics import Metrics, Series
from headfirst.common.state_files import replace_file
from headfirst.common.untrusted import UntrustedError, json_document, json_object, shown

CONFIG = Path("/etc/headfirst")
_SERIES = tuple(field.name for field in fields(Metrics) if field.type == "Series")
# Fields of `GenerationRecord.worker`, and their types.
_WORKER: dict[str, type] = {"worker_type": str, "bootstrap_port": int, "kv_connector": str, "kv_role": str}
_T = TypeVar("_T")
_reported: dict[Path, str] = {}  # what is wrong with a record, so that the journal has it once
# In a line of YAML or of an env file.
_VALUE = re.compile(r"[:=-] ?['\"]?([^\s'\"]{8,})['\"]?$", re.MULTILINE)


@dataclass(frozen=True)
class RouterAddress:
    """Where a replica registers: the router's address, and the key of its control API."""

    url: str
    key: str = field(repr=False)


@dataclass(frozen=True)
class GenerationRecord:
    """One generation of a replica, as the supervisor needs it. `ranks` are addresses by rank.

    `worker`: what routers need of it beside its address and key, as fields of a worker in smg's API.
    """

    name: str
    generation: str
    ranks: tuple[str, ...]
    url: str
    model: str
    api_key: str = field(repr=False)
    readiness: dict[str, Any]
    path_generates: bool  # 200 at the path of `readiness` proves that the model computes
    metrics: Metrics | None  # None: what the engine publishes is not known
    routers: tuple[RouterAddress, ...]
    hang_s: float
    start_s: float  # the longest start
    worker: dict[str, str | int] = field(default_factory=dict)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)  # of which a log may have one


@dataclass(frozen=True)
class StandbyRecord:
    """A generation that waits on a spare and the other hosts of a replica, for one of its hosts to be away.

    The host of rank `replaces`, of those at the addresses `instead_of`, is then replaced by `spare`.
    `instead_of_url` is where the replica answers with it.
    """

    record: GenerationRecord
    spare: str
    replaces: int
    instead_of: tuple[str, ...]
    instead_of_url: str
    after_s: float


def read(
    name: str, generation: str, folder: Path = CONFIG, *, served: bool = True
) -> GenerationRecord | None:
    """The record; None where there is none that is supervised: it has not `served`, or has no addresses."""

    def parsed(document: dict[str, Any]) -> GenerationRecord | None:
        return _record(name, generation, document) if document.get("worked_at") or not served else None

    return _checked(_path(name, generation, folder), parsed)


def router_keys(record: GenerationRecord, folder: Path = CONFIG) -> list[RouterAddress]:
    """The routers of the generation, with the key of each other one too: a run may have replaced the key."""
    name, routers = record.name, list(record.routers)
    for path in sorted((folder / name).glob("*.json")):
        other = _checked(path, lambda document, path=path: _record(name, path.stem, document))  # type: ignore[misc]
        routers += other.routers if other else ()
    addresses = [router.url for router in record.routers]
    return [router for router in dict.fromkeys(routers) if router.url in addresses]


def standby(name: str, generation: str, folder: Path = CONFIG) -> StandbyRecord | None:
    """The generation that waits; None where there is none, or it was activated."""

    def waits(document: dict[str, Any]) -> StandbyRecord | None:
        record = None if document.get("worked_at") else _record(name, generation, document)
        return _standby(record, document) if record else None

    return _checked(_path(name, generation, folder), waits)


def standbys(spare: str, folder: Path = CONFIG) -> list[StandbyRecord]:
    """Every generation that waits for a host to be away that `spare` is to replace."""
    paths = sorted(folder.glob("*/standby-*.json"))
    candidates = [standby(path.parent.name, path.stem, folder) for path in paths]
    return [candidate for candidate in candidates if candidate is not None and candidate.spare == spare]


def activate(name: str, generation: str, folder: Path = CONFIG) -> None:
    """Write the engine's configuration, and note that the supervisor keeps the generation from now on.

    Of the record's files no other one is written. Raises UntrustedError for a damaged record.
    """
    record = _path(name, generation, folder)
    document = _document(record)
    path = names.engine_config(name)
    if path in document.get("files", {}):
        replace_file(folder / Path(path).name, _text(document["files"], path))
    replace_file(record, json.dumps({**document, "worked_at": time.time()}))


def _path(name: str, generation: str, folder: Path) -> Path:
    return folder / name / f"{generation}.json"


def _checked(path: Path, parse: Callable[[dict[str, Any]], _T | None]) -> _T | None:
    """What `parse` makes of the record; None for no record, and for a damaged one, which is reported."""
    try:
        parsed = parse(_document(path))
    except FileNotFoundError:
        return None
    except (OSError, UntrustedError) as error:
        problem = error.what if isinstance(error, UntrustedError) else str(error)
        if _reported.get(path) != problem:
            _reported[path] = problem
            hint = "The supervisor does without it. Run `deploy up`, which writes it again."
            print(f"{path}: {problem}. {hint}", file=sys.stderr, flush=True)
        return None
    _reported.pop(path, None)
    return parsed


def _document(path: Path) -> dict[str, Any]:
    """The record's fields. Raises OSError and UntrustedError."""
    return json_object(json_document(path.read_bytes(), what="the record"), what="the record")


def _record(name: str, generation: str, document: dict[str, Any]) -> GenerationRecord | None:
    supervision = json_object(document.get("supervision") or {}, what="supervision")
    if not supervision.get("ranks"):
        return None
    readiness = json_object(document.get("readiness"), what="readiness")
    for key in ("path", "probe_path"):
        _text(readiness, key)
    json_object(readiness.get("probe_body"), what="probe_body")
    if not isinstance(readiness.get("answer"), list):
        raise UntrustedError("answer is not a list")
    return GenerationRecord(
        name=name,
        generation=generation,
        ranks=_texts(supervision, "ranks"),
        url=_url(document, "url"),
        model=_text(document, "model"),
        api_key=_text(document, "api_key"),
        readiness=readiness,
        path_generates=bool(supervision.get("path_generates")),
        metrics=_metrics(supervision["metrics"]) if supervision.get("metrics") else None,
        routers=_routers(supervision.get("routers") or []),
        hang_s=_seconds(supervision, "hang_seconds"),
        start_s=_seconds(supervision, "start_seconds"),
        worker=_worker(supervision.get("worker") or {}),
        secrets=_secrets(document),
    )


def _secrets(document: dict[str, Any]) -> frozenset[str]:
    """The API key, and each value in the files of the generation."""
    files = json_object(document.get("files") or {}, what="files")
    values = (value for name in files for value in _VALUE.findall(_text(files, name)))
    return frozenset(filter(None, (_text(document, "api_key"), *values)))


def _standby(record: GenerationRecord, document: dict[str, Any]) -> StandbyRecord | None:
    if not document["supervision"].get("standby"):
        return None
    waits = json_object(document["supervision"]["standby"], what="standby")
    instead_of, spare, replaces = _texts(waits, "instead_of"), _text(waits, "spare"), waits.get("replaces")
    if not isinstance(replaces, int) or not 0 <= replaces < len(instead_of):
        raise UntrustedError("replaces is not the number of a rank")
    if spare in instead_of or spare not in record.ranks:
        raise UntrustedError("the spare has no place among the ranks, or has one already")
    return StandbyRecord(
        record=record,
        spare=spare,
        replaces=replaces,
        instead_of=instead_of,
        instead_of_url=_url(waits, "instead_of_url"),
        after_s=_seconds(waits, "after_seconds"),
    )


def _text(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise UntrustedError(f"{key} is not a text")
    return value


def _texts(fields: dict[str, Any], key: str) -> tuple[str, ...]:
    values = fields.get(key)
    if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
        raise UntrustedError(f"{key} is not a list of texts")
    return tuple(values)


def _seconds(fields: dict[str, Any], key: str) -> float:
    value = fields.get(key)
    if not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise UntrustedError(f"{key} is not a number of seconds")
    return float(value)


def _url(fields: dict[str, Any], key: str) -> str:
    text = _text(fields, key)
    try:
        complete = bool(urlsplit(text).hostname and urlsplit(text).port)
    except ValueError:
        complete = False
    if not complete:
        raise UntrustedError(f"{key} is not an address with a port")
    return text


def _worker(document: Any) -> dict[str, str | int]:
    fields = json_object(document, what="worker")
    for key, value in fields.items():
        if key not in _WORKER or not isinstance(value, _WORKER[key]) or isinstance(value, bool):
            raise UntrustedError(f"worker has a field {shown(key)} that no router takes")
    return fields


def _routers(documents: Any) -> tuple[RouterAddress, ...]:
    if not isinstance(documents, list):
        raise UntrustedError("routers is not a list")
    routers = [json_object(document, what="a router") for document in documents]
    return tuple(RouterAddress(url=_url(router, "url"), key=_text(router, "key")) for router in routers)


def _metrics(document: Any) -> Metrics:
    """The engine's metrics, as `dataclasses.asdict` writes them."""
    try:
        progress, copies = tuple(map(_series, document["progress"])), tuple(document["copies"])
        series = {key: _series(document[key]) for key in _SERIES}
        metrics = Metrics(**{**document, **series, "progress": progress, "copies": copies})
    except (AttributeError, KeyError, TypeError) as error:
        raise UntrustedError(f"metrics has other fields than this version: {error}") from None
    for key in ("model_label", "path", "flag", "throughput"):
        _text(vars(metrics), key)
    return metrics


def _series(document: dict[str, Any]) -> Series:
    labels = json_object(document.get("labels", {}), what="labels")
    return Series(_text(document, "name"), {label: _text(labels, label) for label in labels})
