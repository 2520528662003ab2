"""What a node serves, told to the role that compares the nodes. Reads no weights and asks no hub."""

from __future__ import annotations

from pathlib import Path

from headfirst.weights import manifest as manifests
from headfirst.weights.fetch import Request
from headfirst.weights.files import STATE_FOLDER
from headfirst.weights.path_source import PathSource
from headfirst.weights.verify import changed_files

Status = dict[str, object]


def look(request: Request, served: Path, source: Path | None) -> Status:
    """What is in `served`; `source` is the folder of the FP8 copy where `served` is to be made of one.

    `digest` is "" where it is not whole, and `changed` names the files that are not as they were proven.
    `answers`: it is what `request` asks for, as of `pinned`. `leftover`: something of ours is in `source`.
    """
    status: Status = {"digest": "", "answers": False, "pinned": "", "changed": [], "files": {}}
    # A folder that is to be used in place has notes of ours, and is not ours.
    status["leftover"] = bool(source and (source / STATE_FOLDER).is_dir() and not request.is_for(source))
    manifest = manifests.load(served)
    if manifest is None:
        return status
    wrong = changed_files(served, manifest)
    converted = "converted_from" in manifest.origin
    return status | {
        "digest": "" if wrong else manifest.digest,
        "answers": request.origin.items() <= manifest.origin.items() and converted == (source is not None),
        "pinned": manifest.origin.get("pinned", ""),
        "changed": wrong,
        # 16 digits are enough to name the files in which two nodes differ.
        "files": {name: record.xxh3[:16] for name, record in manifest.files.items()},
    }


def pinned_now(request: Request) -> str:
    """What a folder on this node holds now, to compare with `pinned`; "" for a hub, which is not asked."""
    return PathSource(Path(request.model)).list().pinned if request.source == "path" else ""
