"""What a run was asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from headfirst.control.deployment.bundled import BundleRequest

Backend = Literal["gloo", "nccl", "mpi"]  # of the collectives that `deploy check --comm` runs


@dataclass(frozen=True)
class RunOptions:
    """Ansible's own options of a run, by Ansible's names."""

    inventories: Sequence[Path]
    extra_vars: Sequence[str] = ()
    limit: str | None = None
    tags: Sequence[str] = ()
    check: bool = False
    diff: bool = False
    verbosity: int = 0
    service: str | None = None  # NAME or NAME/REPLICA
    wait_s: float = 0.0  # for a lock that another run holds
    bundle: BundleRequest | None = None  # takes the place of every other source
