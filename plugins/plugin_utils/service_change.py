"""Which generation of a service's containers is to run, and which one to return to when it fails.

A generation is one specification of all ranks together. A rank's state is a mapping:
  host, rank, fingerprint   the host, its rank, and the fingerprint of the container that it should have
  seen                      what the module container_generations returned there
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

Ranks = Sequence[dict[str, Any]]


def change(ranks: Ranks) -> dict[str, Any]:
    """Return what `up` must do.

    Keys: `generation` (wanted) and `hosts` that run it; `restart` (false: every rank runs it); `fallback`
    (the generation that is started again when the wanted one fails, or "") and `fallback_hosts`; `keep`
    (generations whose containers stay afterwards).
    """
    wanted = _generation(ranks)
    worked = _worked(ranks)
    currents = [rank["seen"]["current"] for rank in ranks]
    running = {current["generation"] if current["running"] else "" for current in currents}
    # What all ranks run now comes first, also where another generation was started after it.
    others = sorted((one for one in worked if one != wanted), key=lambda one: running != {one})
    restart = any(current["generation"] != wanted or not current["running"] for current in currents)
    # A generation that worked and only has to be started again is no change that could be undone.
    same = wanted in worked and all(current["generation"] in (wanted, "") for current in currents)
    return {
        "generation": wanted,
        "hosts": [rank["host"] for rank in ranks],
        "restart": restart,
        **_fallback(ranks, "" if same else next(iter(others), "")),
        "keep": [wanted, *others[:1]],
    }


def rollback(ranks: Ranks) -> dict[str, Any]:
    """Return what `rollback` must do, with the keys of `change`; `generation` is "" where there is none."""
    worked = _worked(ranks)
    present = {rank["seen"]["current"]["generation"] for rank in ranks} - {""}
    target = next((generation for generation in worked if generation not in present), "")
    fallback = next((generation for generation in worked if generation in present), "")
    return {
        "generation": target,
        "hosts": _hosts(ranks, target),
        "restart": True,
        **_fallback(ranks, fallback),
        "keep": [target, fallback],
    }


def _fallback(ranks: Ranks, generation: str) -> dict[str, Any]:
    return {"fallback": generation, "fallback_hosts": _hosts(ranks, generation)}


def _hosts(ranks: Ranks, generation: str) -> list[str]:
    """Hosts with a container of a generation: the inventory may have got more hosts since."""
    return [rank["host"] for rank in ranks if generation in rank["seen"]["generations"]]


def _generation(ranks: Ranks) -> str:
    fingerprints = sorted((int(rank["rank"]), rank["fingerprint"]) for rank in ranks)
    return hashlib.sha256(json.dumps(fingerprints).encode()).hexdigest()[:12]


def _worked(ranks: Ranks) -> list[str]:
    """Generations that served once and whose ranks are all there, the one that served last first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for rank in ranks:
        for generation, entry in rank["seen"]["generations"].items():
            found.setdefault(generation, []).append(entry)
    worked = {
        generation: max(entry["worked_at"] for entry in entries)
        for generation, entries in found.items()
        if len(entries) == entries[0]["ranks"]
    }
    return sorted((one for one, at in worked.items() if at), key=lambda one: worked[one], reverse=True)
