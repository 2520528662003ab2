"""Which cluster an inventory describes: a generated id, bound to the inventory's path on this controller.

Two inventories with the same file name in different folders are different clusters.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from pathlib import Path

from pydantic import Field, ValidationError

from headfirst.common.errors import InputError
from headfirst.common.state_files import exclusive, read_file, replace_file
from headfirst.control.paths import state_dir
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.frozen import Frozen

ID = re.compile(r"[0-9a-f]{32}")
_FILE = "cluster.json"


class Identity(Frozen):
    """What this controller stores about a cluster."""

    id: str = Field(default_factory=lambda: uuid.uuid4().hex, pattern=ID)
    inventory: str


def cluster_folder(cluster: Cluster) -> Path:
    """This controller's folder for the cluster."""
    digest = hashlib.sha256(_inventory(cluster).encode()).hexdigest()
    return state_dir("clusters", f"{cluster.name}-{digest[:8]}")


def existing(cluster: Cluster) -> str | None:
    """The cluster's id, or None where this controller has none yet."""
    identity = _read(cluster_folder(cluster) / _FILE)
    return identity.id if identity else None


def bind(cluster: Cluster, id: str | None = None) -> str:
    """The cluster's id: the one bound earlier, else `id`, else a new one, which is bound from then on."""
    folder = cluster_folder(cluster)
    with exclusive(folder):
        if identity := _read(folder / _FILE):
            return identity.id
        created = Identity(inventory=_inventory(cluster), **({"id": id} if id else {}))
        replace_file(folder / _FILE, created.model_dump_json(indent=2) + "\n")
        return created.id


def bound_elsewhere(id: str, cluster: Cluster) -> str | None:
    """The other inventory of this controller that has the id; None also where that file is gone (moved)."""
    for file in sorted(state_dir("clusters").glob(f"*/{_FILE}")):
        identity = _read(file)
        if identity and identity.id == id and identity.inventory != _inventory(cluster):
            return identity.inventory if Path(identity.inventory).exists() else None
    return None


def _inventory(cluster: Cluster) -> str:
    return str(cluster.inventories[0].resolve())


def _read(path: Path) -> Identity | None:
    text = read_file(path)
    if text is None:
        return None
    try:
        return Identity.model_validate_json(text)
    except ValidationError as error:
        raise InputError(
            f"the identity of the cluster cannot be read: {error.errors()[0]['msg']}",
            where=str(path),
            hint="Move the file away: `deploy up` reads the id from the head again.",
        ) from None
