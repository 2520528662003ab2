"""`deploy bench --engines`: the same requests to one engine after the other, on the same nodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from headfirst.common.errors import InputError
from headfirst.control.bench.result import BenchResult
from headfirst.control.deployment.measuring.bench import BenchWatcher, Workload, bench, draw
from headfirst.control.deployment.measuring.restored import restored
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.verbs.up import up
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.decide import engines


class EngineChoice(NamedTuple):
    """An engine as `--engines` names it; `version` None: the inventory's, or the newest."""

    engine: str
    version: str | None


@dataclass(frozen=True)
class EnginesOutcome:
    """A result for each engine, in the order that was asked for."""

    results: list[BenchResult]
    folder: Path


def read_names(text: str) -> list[EngineChoice]:
    """`sglang,vllm=0.32.0`. InputError for an unknown engine or version."""
    names = []
    for part in text.split(","):
        name, _, version = part.strip().partition("=")
        engines.get(name, version or None, where="--engines")
        names.append(EngineChoice(name, version or None))
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError("at least two different engines are compared", where="--engines")
    return names


def bench_engines(
    options: RunOptions,
    workload: Workload,
    choices: Sequence[EngineChoice],
    folder: Path | None,
    watcher: BenchWatcher,
    reporter: Reporter,
) -> EnginesOutcome:
    """Bring each engine up, measure it, and bring the inventory's own up again, also after a failure."""
    prepared = prepare(options.inventories, options.extra_vars, probe=False)
    if len(prepared.cluster.services) > 1:
        listed = ", ".join(map(str, prepared.cluster.services))
        raise InputError(  # an extra variable is set for all of them
            "deploy bench --engines changes a variable of all services, and the cluster has several: "
            + listed,
            hint="Use it on an inventory of one service.",
        )
    usual = EngineChoice(prepared.plan.services[0].engine, prepared.plan.services[0].engine_version)
    changes = [_change(choice, usual) for choice in choices]
    for change in changes:  # what cannot be planned is refused before anything is restarted
        prepare(options.inventories, [*options.extra_vars, *change], probe=False)
    results: list[BenchResult] = []
    with restored(replace(options, service=None), reporter):
        for choice, change in zip(choices, changes, strict=True):
            changed = replace(options, extra_vars=[*options.extra_vars, *change])
            up(replace(changed, service=None), reporter)
            place = folder / choice.engine if folder else None
            outcome = bench(changed, workload, place, watcher)
            results.append(outcome.result)
            where = folder or outcome.folder
    draw(where, results)
    return EnginesOutcome(results, where)


def _change(choice: EngineChoice, usual: EngineChoice) -> list[str]:
    """Extra variables. The inventory's image and flags are those of its own engine."""
    if choice.engine == usual.engine and choice.version in (None, usual.version):
        return []
    variables = {"engine": choice.engine, "engine_version": choice.version, "engine_image": None}
    if choice.engine != usual.engine:
        variables["engine_args"] = ""
    return [json.dumps(variables)]
