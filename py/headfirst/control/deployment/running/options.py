"""What a run was asked to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Backend = Literal["gloo", "nccl", "mpi"]  # of the collectives that `deploy check --comm` runs


@dataclass(frozen=True)
class BundleRequest:
    """The bundles of a command line, the older ones first, and who may have signed them.

    `signers` is an allowed signers file; None with `unsigned` takes bundles without a signature. With `older`
    a signed bundle may be older than the newest one that was accepted.
    """

    paths: Sequence[Path]
    signers: Path | None = None
    unsigned: bool = False
    older: bool = False


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
    # By the service's name: in place of those that the inventory sets.
    engine_args: Mapping[str | None, Sequence[str]] = field(default_factory=dict)
    wait_s: float = 0.0  # for a lock that another run holds
    bundle: BundleRequest | None = None  # takes the place of every other source
