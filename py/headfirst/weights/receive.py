"""Make a folder the checkpoint that another node serves; every file is proven before it gets its name."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headfirst.errors import NotReadyError
from headfirst.weights import manifest as manifests
from headfirst.weights.files import STATE_FOLDER, claim, list_files, publish, require_space
from headfirst.weights.hash_cache import FileRecord, HashCache
from headfirst.weights.manifest import MANIFEST, Manifest
from headfirst.weights.peer import Peer
from headfirst.weights.progress import Progress
from headfirst.weights.verify import faults

_STREAMS = 4
PATIENCE_S = 600.0


def receive(
    url: str,
    target: Path,
    token: str,
    digest: str,
    *,
    will_convert: bool = False,
    patience_s: float = PATIENCE_S,
) -> tuple[Manifest, bool]:
    """Make `target` the checkpoint served at `url`, whose manifest must have this digest.

    What is already right is kept. `will_convert` asks for space for a BF16 copy too. Returns the manifest and
    whether anything had to be brought.
    """
    peer = Peer(url, token, patience_s)
    manifest = peer.manifest()
    if manifest.digest != digest:
        raise NotReadyError(
            "another checkpoint is served than the one asked for", where=url, hint="Run again."
        )
    before = manifests.load(target)
    claim(target)
    with Progress("verify") as progress:
        wrong = {name: manifest.files[name] for name in faults(target, manifest, progress)}
    if before == manifest and not wrong:
        return manifest, False
    manifests.discard(target)
    _require_space(target, manifest, wrong, will_convert)
    for name in set(list_files(target)) - manifest.files.keys() - {MANIFEST}:
        (target / name).unlink()
    with Progress("receive", manifest.size) as progress:
        progress.add(manifest.size - sum(record.size for record in wrong.values()))
        _pull_all(peer, wrong, target, progress)
    manifests.save(target, manifest)
    return manifest, True


def _require_space(
    target: Path, manifest: Manifest, wrong: Mapping[str, FileRecord], will_convert: bool
) -> None:
    parts = [_part(target, name) for name in wrong]
    present = sum(part.stat().st_size for part in parts if part.is_file())
    missing = max(0, sum(record.size for record in wrong.values()) - present)
    if will_convert:  # a BF16 value has two bytes for each byte of FP8
        require_space(target, missing + 2 * manifest.size, "receive the model and convert it to BF16")
    else:
        require_space(target, missing, "receive the model")


def _pull_all(peer: Peer, files: Mapping[str, FileRecord], target: Path, progress: Progress) -> None:
    cache = HashCache(target)

    def pull(item: tuple[str, FileRecord]) -> None:
        name, record = item
        try:
            peer.pull(name, record, _part(target, name), progress.add)
        except BaseException:
            peer.stop.set()  # the other streams end too
            raise
        if not peer.stop.is_set():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            publish(_part(target, name), target / name)
            cache.put(name, record)

    with ThreadPoolExecutor(_STREAMS) as pool:
        for _ in pool.map(pull, files.items()):
            pass


def _part(target: Path, name: str) -> Path:
    return target / STATE_FOLDER / "parts" / f"{name}.part"
