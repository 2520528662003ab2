"""Files on this machine that settings of an inventory name."""

from __future__ import annotations

import contextlib
from pathlib import Path

from headfirst.decide.cluster.types import Cluster


def local_file(cluster: Cluster, named: str) -> Path:
    """The absolute path of the file that a setting names; a relative one starts at the inventory's folder."""
    inventory = cluster.inventories[0].absolute()
    path = Path(named)
    with contextlib.suppress(RuntimeError):  # no user of this name: there is no such file
        path = path.expanduser()
    return (inventory if inventory.is_dir() else inventory.parent) / path
