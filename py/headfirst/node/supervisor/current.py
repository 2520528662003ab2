"""The generation of a replica that runs on this node, for the commands."""

from __future__ import annotations

from headfirst.node.supervisor import records
from headfirst.node.supervisor.containers import Containers
from headfirst.node.supervisor.records import Record


def current(name: str) -> Record | None:
    """The record of the generation that has the name and runs, if there is one. Raises EngineDown."""
    rank = Containers().rank(name)
    return records.read(name, rank.generation) if rank and rank.running else None
