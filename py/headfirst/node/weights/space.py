"""The disk that a node's part in a transfer needs, asked for before anything is brought."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path

from headfirst.node.weights.files import require_space

SHARDS_IN_FLIGHT = 8
"""FP8 shards on a disk at a time where each is deleted once converted; plan/weights/transfer.py agrees."""


def require_node_space(
    sizes: Mapping[str, int], folder: Path, target: Path | None, keep_source: bool
) -> None:
    """NotReadyError unless what is missing fits: files (`sizes` in bytes) and, in `target`, BF16 of them."""
    missing = max(0, sum(sizes.values()) - disk_bytes(folder, sizes))
    if target is None:
        require_space(folder, missing, "receive the model")
        return
    if not keep_source:
        missing = min(missing, SHARDS_IN_FLIGHT * max(sizes.values(), default=0))
    require_space(folder, missing + bf16_missing(sizes, target), "receive the model and convert it to BF16")


def require_origin_space(
    sizes: Mapping[str, int], missing: int, folder: Path, target: Path | None, keep_source: bool
) -> None:
    """The same for the origin, which computes from its source how many bytes are `missing`."""
    if target is None:
        require_space(folder, missing, "fetch the model")
        return
    if not keep_source:
        missing = min(missing, SHARDS_IN_FLIGHT * max(sizes.values(), default=0))
    require_space(folder, missing + bf16_missing(sizes, target), "fetch the model and convert it to BF16")


def bf16_missing(sizes: Mapping[str, int], target: Path, growth: float = 2) -> int:
    """Bytes that `target` still needs, where each byte of the source becomes `growth` bytes.

    A BF16 value has two for each one of FP8. What a format takes beyond that is known, and asked for, when
    config.json is here (Conversion.plan).
    """
    return max(0, int(growth * sum(sizes.values())) - disk_bytes(target, sizes))


def disk_bytes(folder: Path, names: Container[str]) -> int:
    """Bytes on disk of `names` below `folder`, and of what is hidden: hard links once, holes not."""
    seen = {}
    for path in folder.rglob("*"):
        try:
            stat = path.lstat()
        except FileNotFoundError:  # renamed between listing and looking
            continue
        name = path.relative_to(folder).as_posix()
        if name not in names and not name.startswith("."):
            continue
        seen[stat.st_ino] = min(stat.st_size, stat.st_blocks * 512)
    return sum(seen.values())
