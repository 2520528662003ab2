"""Hosts that a scheduler allocates when a job starts: an inventory does not list them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headfirst.common.errors import InputError
from headfirst.control.inventory.reading import read


@contextmanager
def with_nodes(inventories: Sequence[Path], nodes: int | None, *, probe: bool) -> Iterator[list[Path]]:
    """The inventories, with `nodes` hosts (at most 254) in [head] and [workers]; None: as they are.

    Their addresses are those for documentation (192.0.2.0/24, RFC 5737): no host has one. InputError where
    the inventories list hosts themselves, and for `probe` of hosts that are not there.
    """
    if nodes is None:
        yield list(inventories)
        return
    if probe:
        raise InputError(
            "--probe and --nodes exclude each other", hint="Hosts of a scheduler are not there yet."
        )
    paths = [path.absolute() for path in inventories]
    reading = read(paths, (), None)
    if reading.own_groups or any(reading.groups.values()):
        raise InputError(
            "--nodes is for an inventory that lists no hosts",
            where=str(inventories[0]),
            hint="Leave --nodes out, or keep [all:vars] alone.",
        )
    with tempfile.TemporaryDirectory(prefix="headfirst-") as scratch:
        file = Path(scratch) / "allocation.ini"
        head, *workers = (f"node{number} address=192.0.2.{number}" for number in range(1, nodes + 1))
        file.write_text("\n".join(["[head]", head, "[workers]", *workers, ""]))
        yield [*inventories, file]
