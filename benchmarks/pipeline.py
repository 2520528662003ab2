"""A model from its hub to all nodes, all stages at once: beside each stage alone and the documented sequence.

Usage: python benchmarks/pipeline.py [--nodes 4] [--source-rate 200mbit] [--network-rate 400mbit] [--json]

Needs root: each node is a network namespace on one shaped LAN, and the head has a shaped line to a server
that speaks the hub's API. In one run, one after the other: the head fetches; it passes the files on; one node
converts; all convert at once (they share this machine's processors, so that is what conversion takes here);
all of it by `headfirst-weights pipeline`; and the documented sequence: the hub's own client downloads, the
head converts (with our converter, which is kind), rsync copies the BF16 files to one node after the other.
All copies are read and compared. Aim: 1.15 times the slowest stage alone.

The nodes' folders lie in memory unless --folder says otherwise (it must have room for ten times --size): four
nodes have four disks, and here they would share one. A run takes about four minutes. The rates are so low
because the processors of one machine work for all nodes: "processors" is all CPU seconds of the stages over
the cores, and must stay far below the slowest stage; so must whatever else the machine does ("load").
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from functools import reduce
from operator import add
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "py"))
from convert import BLOCK, COLUMNS, write_checkpoint
from headfirst.decide.plan.weights.duration import SHARDS_AT_ONCE, pipelined
from pipeline_runs import Runs
from transfer_site import Cost, Site, end_on_sigterm

MEMORY = Path("/dev/shm")
STEP_LIMIT_S = 600.0
TENSORS = 2
ALONE = ("fetch", "broadcast", "convert, all nodes")


def main() -> None:
    """Measure everything in one run, and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--source-rate", default="200mbit", help="the head's line, as tc writes it")
    parser.add_argument("--network-rate", default="400mbit", help="each node's link to the LAN")
    parser.add_argument("--size", type=float, default=0.7, help="GB of FP8 (10⁹ bytes)")
    parser.add_argument("--shards", type=int, default=48)
    parser.add_argument("--folder", type=Path, default=MEMORY, help="where the nodes' folders lie")
    parser.add_argument("--without-documented", action="store_true", help="leave that out: it takes longest")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    end_on_sigterm()
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="headfirst-pipeline-") as name:
        size, costs = measure(Path(name), arguments)
    found = conclusions(costs, arguments.shards, arguments.nodes)
    if arguments.json:
        setting = {key: str(value) for key, value in vars(arguments).items()} | {"bytes": size}
        stages = {what: asdict(cost) for what, cost in costs.items()}
        print(json.dumps({"setting": setting, "costs": stages, **found}))
    else:
        print(title(size, arguments), *table(costs), *sentences(found), sep="\n")


def measure(folder: Path, arguments: argparse.Namespace) -> tuple[int, dict[str, Cost]]:
    """Bytes of the checkpoint, and the costs of all stages and sequences."""
    source = folder / "source"
    source.mkdir()
    blocks = arguments.size * 1e9 / arguments.shards / TENSORS / COLUMNS / BLOCK
    size = write_checkpoint(source, arguments.shards, TENSORS, BLOCK * max(1, round(blocks)))
    nodes, rates = arguments.nodes, (arguments.network_rate, arguments.source_rate)
    with Site(nodes, *rates, folder, STEP_LIMIT_S) as site:
        site.serve(source)
        runs = Runs(site, nodes)
        costs, digest = stages(runs, source, nodes)
        if not arguments.without_documented:
            documented = runs.documented()
            costs |= documented | {"documented": reduce(add, documented.values())}
            if runs.prove("documented") != digest:
                sys.exit("the documented sequence came to other files")
    return size, costs


def stages(runs: Runs, source: Path, nodes: int) -> tuple[dict[str, Cost], str]:
    """What each stage costs alone, and all together; the digest that every copy has."""
    runs.warm_up(source)
    costs = {"fetch": runs.fetch(), "broadcast": runs.broadcast()}
    costs["convert, one node"] = runs.convert([0], "alone")
    runs.remove("alone", "warm")
    costs["convert, all nodes"] = runs.convert(range(nodes), "together", "--drop-source")  # as ours
    digest = runs.prove("together")
    runs.remove("fp8", "together")
    costs["ours"] = runs.whole()
    if runs.prove("ours") != digest:
        sys.exit("the pipeline came to other files than its stages")
    runs.remove("arriving", "ours")
    return costs, digest


def conclusions(costs: Mapping[str, Cost], shards: int, nodes: int) -> dict[str, float]:
    """Ratios, and the seconds that the plan's model says for stages that take so long."""
    alone = {stage: costs[stage].seconds for stage in ("fetch", "broadcast")}
    # The model's processors do all that is done with a byte; here they do it for all nodes.
    alone["processors"] = sum(costs[stage].cpu for stage in ALONE) / (os.cpu_count() or 1)
    ours, slowest = costs["ours"].seconds, max(costs[stage].seconds for stage in ALONE)
    predicted = pipelined(alone, at_once=min(1, SHARDS_AT_ONCE / shards), nodes=nodes)
    found = {
        "ours over the slowest stage": ours / slowest,
        "stages one after the other over ours": sum(costs[stage].seconds for stage in ALONE) / ours,
        "processors": alone["processors"],
        "predicted": predicted,
        "predicted over ours": predicted / ours,
    }
    if "documented" in costs:
        found["documented over ours"] = costs["documented"].seconds / ours
    return found


def title(size: int, arguments: argparse.Namespace) -> str:
    """What was measured."""
    return (
        f"{size / 1e9:.2f} GB of FP8 in {arguments.shards} shards to {arguments.nodes} nodes; the line "
        f"{arguments.source_rate}, the LAN {arguments.network_rate}; {os.cpu_count()} cores for all"
    )


def table(costs: Mapping[str, Cost]) -> list[str]:
    """One line for each cost."""
    lines = [f"{'':22}{'seconds':>9}{'CPU s':>8}{'peak MiB':>10}{'head sent GB':>14}{'load':>7}"]
    for what, cost in costs.items():
        memory, sent = cost.peak / 2**20, cost.sent / 1e9
        lines.append(f"{what:22}{cost.seconds:9.1f}{cost.cpu:8.1f}{memory:10.0f}{sent:14.2f}{cost.load:7.1f}")
    return lines


def sentences(found: Mapping[str, float]) -> list[str]:
    """One line for each conclusion."""
    units = {"processors": " s, all CPU seconds of the stages over the cores", "predicted": " s, by the plan"}
    return [f"{what}: {value:.2f}{units.get(what, '')}" for what, value in found.items()]


if __name__ == "__main__":
    main()
