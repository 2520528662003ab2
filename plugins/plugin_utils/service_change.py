"""Which generation of a service's containers is to run, and which one to return to when it fails.

A generation is one specification of all ranks of a replica together; a version is one generation of each
replica of a service. A rank's state is a mapping:
  host, rank, fingerprint   the host, its rank, and the fingerprint of the container that it should have
  seen                      what the module container_generations returned there
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils import node_answer
from ansible_collections.headfirst.serving.plugins.plugin_utils.node_answer import Spec

Ranks = Sequence[dict[str, Any]]

# A generation becomes a container's name, a file's name and an argument on all hosts.
_GENERATION = "(standby-)?[0-9a-f]{12}"
_TIME: Spec = {"type": "float", "min": 0, "max": 1e11}
_TIMES: Spec = {
    **{name: {**_TIME, "required": False} for name in ("planned_at", "served_at")},
    "returned": {"type": "bool", "required": False},
}
_ENTRY: Spec = {
    "worked_at": _TIME,
    "rank": "int",
    "ranks": "int",
    **{name: {"type": "str", "required": False} for name in ("container", "url")},
    "start_seconds": {"type": "float", "required": False},
    "versions": {
        "type": "dict",
        "required": False,
        # It becomes a variable of a play, which Ansible reads as a template.
        "pattern": "[A-Za-z0-9 _.:+-]{1,64}",
        "elements": {"type": "dict", "options": _TIMES},
    },
}
_CURRENT: Spec = {
    "generation": {"type": "str", "pattern": f"({_GENERATION})?"},
    "running": "bool",
    "rank": {"type": "int", "required": False},
}
SEEN: Spec = {
    "current": {"type": "dict", "options": _CURRENT},
    "generations": {
        "type": "dict",
        "pattern": _GENERATION,
        "elements": {"type": "dict", "options": _ENTRY},
    },
}
"""What a decision reads of the module's result, as node_answer.py checks it."""
_PUBLISHED: Spec = {
    "replica": "str",
    "host": "str",
    "rank": {"type": "int", "min": 0},
    "seen": {"type": "dict", "options": SEEN},
}


def checked(ranks: Ranks) -> list[dict[str, Any]]:
    """The ranks; ValueError, which names the host, where one reports what the module does not."""
    proven = []
    for rank in ranks:
        try:
            seen = node_answer.named({name: rank["seen"].get(name) for name in SEEN}, SEEN)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"The generations of {rank['host']} are refused: {error}.") from None
        proven.append({**rank, "seen": seen})
    return proven


def published(ranks: Any, host: str) -> list[dict[str, Any]]:
    """The states of a host's ranks, as `host_ranks` made them; ValueError where the host has sent others."""
    rule = {"type": "list", "elements": "dict", "options": _PUBLISHED}
    proven = node_answer.named({"ranks": ranks}, {"ranks": rule})["ranks"]
    return [{**rank, "host": host} for rank in proven]


def change(ranks: Ranks, replicas: int = 1, standbys: Sequence[str] = ()) -> dict[str, Any]:
    """Return what `up` must do with a replica, of so many that the service has.

    Keys: `generation` (wanted) and `hosts` that run it; `restart` (false: every rank runs it); `fallback`
    (the generation that is started again when the wanted one fails, or "") and `fallback_hosts`; `keep`
    (generations whose containers stay when the one or the other serves). `standbys` are generations that wait
    for a spare: they stay.
    """
    planned = _generation(ranks)
    worked = _worked(ranks)
    currents, running = [rank["seen"]["current"] for rank in ranks], _running(ranks)
    # What all ranks run now comes first, also where another generation was started after it.
    others = [generation for generation in worked if generation != planned]
    others.sort(key=lambda generation: running != {generation})
    others = others or _unproven(ranks, planned)
    # A generation that worked and only has to be started again is no change that could be undone.
    same = planned in worked and all(current["generation"] in (planned, "") for current in currents)
    # What runs may have ranks on other hosts, too: then the return is to that, and no change of these ranks.
    beyond = [generation for generation in running if generation not in worked and _served(ranks, generation)]
    fallback = "" if same or beyond else next(iter(others), "")
    # Which version of several replicas can be returned to is known when all of them serve: see `kept`.
    keep = [planned, *(others if replicas > 1 else others[:1]), *standbys]
    return {
        "generation": planned,
        "hosts": [rank["host"] for rank in ranks],
        "restart": not _runs(ranks, planned),
        **_fallback(ranks, fallback),
        "keep": keep,
    }


def rollback(ranks: Ranks, target: str = "", replicas: int = 1) -> dict[str, Any]:
    """Return what `rollback` must do, with the keys of `change`; `generation` is "" where there is none.

    `target` is the replica's generation in the version that the service returns to. Without it the replica is
    the whole service.
    """
    if not target:
        target = previous({"": ranks})["generations"].get("", "")
    worked = _worked(ranks)
    present = {rank["seen"]["current"]["generation"] for rank in ranks} - {"", target}
    returns = [*(generation for generation in worked if generation in present), *_unproven(ranks, target)]
    fallback = next(iter(returns), "")
    keep = [target, fallback, *(worked if replicas > 1 else ())]
    return {
        "generation": target,
        "hosts": _hosts(ranks, target),
        "restart": not _runs(ranks, target),
        **_fallback(ranks, fallback),
        "keep": keep,
    }


def previous(replicas: Mapping[str, Ranks]) -> dict[str, Any]:
    """Return the version that served before the present one, on all replicas of a service.

    `replicas` are the states of the ranks by replica. Keys: `version` ("" where there is none), `served_at`
    (time of a node's clock), `generations` by replica.
    """
    served = {name: _versions(ranks) for name, ranks in replicas.items()}
    currents = {name: _current(ranks) for name, ranks in replicas.items()}
    whole = set.intersection(*(set(versions) for versions in served.values())) if served else set()
    mappings = {
        version: {name: versions[version]["generation"] for name, versions in served.items()}
        for version in whole
    }
    # A version serves since its last replica does.
    times = {
        version: min(versions[version]["served_at"] for versions in served.values()) for version in whole
    }
    planned, returning = _planned_last(replicas.values())
    if returning and planned in whole and (currents not in mappings.values() or _awaited(replicas, planned)):
        version = planned  # a rollback was interrupted: it goes on
    else:
        others = [version for version in whole if mappings[version] != currents]
        version = max(others, key=lambda version: (times[version], version), default="")
    return {
        "version": version,
        "served_at": times.get(version, 0),
        "generations": mappings.get(version, {}),
    }


def host_ranks(results: Sequence[dict[str, Any]], host: str) -> list[dict[str, Any]]:
    """Return the states of a host's ranks, each with its `replica`: what a loop of container_generations over
    mappings of `name` and `rank` returned there."""
    return [
        {
            "replica": result["item"]["name"],
            "host": host,
            "rank": int(result["item"]["rank"]),
            "seen": {"current": result["current"], "generations": result["generations"]},
        }
        for result in results
    ]


def by_replica(ranks: Ranks) -> dict[str, list[dict[str, Any]]]:
    """Return the states of the ranks of all replicas, by replica."""
    states: dict[str, list[dict[str, Any]]] = {}
    for rank in ranks:
        states.setdefault(rank["replica"], []).append(rank)
    return states


def kept(all_ranks: Ranks) -> dict[str, list[str]]:
    """Return the generations of each replica that stay when all replicas serve.

    They are the present one, that of the version before, and those that never served, such as what waits for
    a spare.
    """
    replicas = by_replica(all_ranks)
    before = previous(replicas)["generations"]
    return {
        name: [
            _current(ranks),
            *([before[name]] if before else _worked(ranks)),
            *(
                generation
                for rank in ranks
                for generation, entry in rank["seen"]["generations"].items()
                if not entry["worked_at"]
            ),
        ]
        for name, ranks in replicas.items()
    }


def _current(ranks: Ranks) -> str:
    """The generation that all ranks have as theirs; "" where they differ."""
    generations = {rank["seen"]["current"]["generation"] for rank in ranks}
    return str(generations.pop()) if len(generations) == 1 else ""


def _served(ranks: Ranks, generation: str) -> bool:
    return any(rank["seen"]["generations"].get(generation, {}).get("worked_at") for rank in ranks)


def _running(ranks: Ranks) -> set[str]:
    """The generations that ranks run, "" for a rank that does not run."""
    currents = [rank["seen"]["current"] for rank in ranks]
    return {current["generation"] if current["running"] else "" for current in currents}


def _unproven(ranks: Ranks, wanted: str) -> list[str]:
    """What all ranks run instead of `wanted`, also since a run that was killed before it saw it serve."""
    return [generation for generation in _complete(ranks) if _running(ranks) == {generation} != {wanted}]


def _runs(ranks: Ranks, generation: str) -> bool:
    currents = [rank["seen"]["current"] for rank in ranks]
    return all(current["generation"] == generation and current["running"] for current in currents)


def _fallback(ranks: Ranks, generation: str) -> dict[str, Any]:
    return {"fallback": generation, "fallback_hosts": _hosts(ranks, generation)}


def _hosts(ranks: Ranks, generation: str) -> list[str]:
    """Hosts with a container of a generation: the inventory may have got more hosts since."""
    return [rank["host"] for rank in ranks if generation in rank["seen"]["generations"]]


def _generation(ranks: Ranks) -> str:
    """Hosts count: one that returns in another rank's place still has the container of its old rank."""
    # An earlier release did not count them: what it started goes on.
    earlier = _digest((int(rank["rank"]), rank["fingerprint"]) for rank in ranks)
    if earlier in _complete(ranks):
        return earlier
    return _digest((int(rank["rank"]), rank["host"], rank["fingerprint"]) for rank in ranks)


def _digest(parts: Iterable[tuple[Any, ...]]) -> str:
    return hashlib.sha256(json.dumps(sorted(parts)).encode()).hexdigest()[:12]


def _worked(ranks: Ranks) -> list[str]:
    """Generations that served once and whose ranks are all there, the one that served last first."""
    worked = {
        generation: max(entry["worked_at"] for entry in entries)
        for generation, entries in _complete(ranks).items()
    }
    return sorted((name for name, at in worked.items() if at), key=lambda name: worked[name], reverse=True)


def _versions(ranks: Ranks) -> dict[str, dict[str, Any]]:
    """Versions that served on a replica, each with its `generation` and `served_at`.

    A generation of a role that is used without versions is the version of its own name.
    """
    versions: dict[str, dict[str, Any]] = {}
    complete = _complete(ranks)
    for generation in _worked(ranks):
        for entry in complete[generation]:
            for version, times in _times(generation, entry).items():
                served_at = times.get("served_at", 0)
                if served_at > versions.get(version, {}).get("served_at", 0):
                    versions[version] = {"generation": generation, "served_at": served_at}
    return versions


def _planned_last(replicas: Iterable[Ranks]) -> tuple[str, bool]:
    """The version that the last run was to bring to a replica, and whether that run was a rollback."""
    planned = [
        (times.get("planned_at", 0), version, bool(times.get("returned")))
        for ranks in replicas
        for rank in ranks
        for generation, entry in rank["seen"]["generations"].items()
        for version, times in _times(generation, entry).items()
    ]
    _at, version, returned = max(planned, default=(0, "", False))
    return version, returned


def _awaited(replicas: Mapping[str, Ranks], version: str) -> bool:
    """Whether a rollback planned a version that has not served since, as where it ended before a start."""
    return any(
        times[version].get("planned_at", 0) > times[version].get("served_at", 0)
        for ranks in replicas.values()
        for rank in ranks
        for generation, entry in rank["seen"]["generations"].items()
        if version in (times := _times(generation, entry))
    )


def _times(generation: str, entry: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """When a generation was planned and served, by version; `returned`: a rollback planned it."""
    default = {generation: {"planned_at": entry["worked_at"], "served_at": entry["worked_at"]}}
    return entry.get("versions") or default


def _complete(ranks: Ranks) -> dict[str, list[dict[str, Any]]]:
    """What the ranks have of each generation whose ranks are all there, each once."""
    by_generation: dict[str, list[dict[str, Any]]] = {}
    for rank in ranks:
        for generation, entry in rank["seen"]["generations"].items():
            by_generation.setdefault(generation, []).append(entry)
    return {
        name: entries
        for name, entries in by_generation.items()
        if sorted(entry["rank"] for entry in entries) == list(range(entries[0]["ranks"]))
    }
