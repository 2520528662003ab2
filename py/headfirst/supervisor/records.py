"""What a node has on disk of its ranks: the records that the role `engine` writes, one a generation.

/etc/headfirst/NAME/GENERATION.json; the module container_generations documents the fields.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headfirst.containers import names
from headfirst.live.metrics import Metrics, Series
from headfirst.state_files import replace_file
from headfirst.supervisor import documents

CONFIG = Path("/etc/headfirst")


@dataclass(frozen=True)
class RouterAddress:
    """Where a replica registers: the router's address, and the key of its control API."""

    url: str
    key: str = field(repr=False)


@dataclass(frozen=True)
class Record:
    """One generation of a replica, as the supervisor needs it. `ranks` are addresses by rank."""

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


@dataclass(frozen=True)
class Standby:
    """A generation that waits on a spare and the other hosts of a replica, for one of its hosts to be away.

    The host of rank `replaces`, of those at the addresses `instead_of`, is then replaced by `spare`.
    `instead_of_url` is where the replica answers with it.
    """

    record: Record
    spare: str
    replaces: int
    instead_of: tuple[str, ...]
    instead_of_url: str
    after_s: float


def read(name: str, generation: str, folder: Path = CONFIG) -> Record | None:
    """The record; None where there is none that is supervised: it has not served, or has no addresses."""
    found = _document(name, generation, folder)
    return _record(name, generation, found) if found.get("worked_at") else None


def standby(name: str, generation: str, folder: Path = CONFIG) -> Standby | None:
    """The generation that waits; None where there is none, or it was activated."""
    found = _document(name, generation, folder)
    record = _record(name, generation, found)
    waits = (found.get("supervision") or {}).get("standby")
    if record is None or not waits or found.get("worked_at"):
        return None
    return Standby(
        record=record,
        spare=waits["spare"],
        replaces=int(waits["replaces"]),
        instead_of=tuple(waits["instead_of"]),
        instead_of_url=waits["instead_of_url"],
        after_s=float(waits["after_seconds"]),
    )


def standbys(spare: str, folder: Path = CONFIG) -> list[Standby]:
    """Every generation that waits for a host to be away that `spare` is to replace."""
    paths = sorted(folder.glob("*/*.json"))
    found = [standby(path.parent.name, path.stem, folder) for path in paths]
    return [one for one in found if one is not None and one.spare == spare]


def activate(name: str, generation: str, folder: Path = CONFIG) -> None:
    """Write the engine's configuration, and note that the supervisor keeps the generation from now on.

    Of the record's files no other one is written.
    """
    found = _document(name, generation, folder)
    path = names.engine_config(name)
    if path in found.get("files", {}):
        replace_file(folder / Path(path).name, found["files"][path])
    replace_file(folder / name / f"{generation}.json", json.dumps({**found, "worked_at": time.time()}))


def _document(name: str, generation: str, folder: Path) -> dict[str, Any]:
    return documents.read(folder / name / f"{generation}.json")


def _record(name: str, generation: str, found: dict[str, Any]) -> Record | None:
    supervision = found.get("supervision") or {}
    if not supervision.get("ranks"):
        return None
    return Record(
        name=name,
        generation=generation,
        ranks=tuple(supervision["ranks"]),
        url=found["url"],
        model=found["model"],
        api_key=found["api_key"],
        readiness=found["readiness"],
        path_generates=bool(supervision.get("path_generates")),
        metrics=_metrics(supervision["metrics"]) if supervision.get("metrics") else None,
        routers=tuple(RouterAddress(**one) for one in supervision.get("routers") or ()),
        hang_s=float(supervision["hang_seconds"]),
        start_s=float(supervision["start_seconds"]),
    )


def _metrics(found: dict[str, Any]) -> Metrics:
    """The engine's metrics, as `dataclasses.asdict` writes them."""
    lists = {"progress": tuple(Series(**one) for one in found["progress"]), "copies": tuple(found["copies"])}
    series = {key: Series(**value) for key, value in found.items() if isinstance(value, dict)}
    return Metrics(**{**found, **series, **lists})
