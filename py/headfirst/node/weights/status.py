"""What a node serves, reported to the role that compares the nodes. Reads no weights and asks no hub."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import FOLDER

from headfirst.node.weights.fetch.fetching import FetchRequest
from headfirst.node.weights.fetch.path_source import PathSource
from headfirst.node.weights.files import STATE_FOLDER, is_in_place
from headfirst.node.weights.layers import read_layers
from headfirst.node.weights.proof import manifest as manifests
from headfirst.node.weights.proof.checkpoint_check import INDEX
from headfirst.node.weights.proof.manifest import LAYERS
from headfirst.node.weights.proof.verify import changed_files, repaired_files

Status = dict[str, object]


def look(request: FetchRequest, served: Path, source: Path | None, layers: range | None = None) -> Status:
    """What is in `served`; `source` is the folder of the FP8 copy where `served` is to be made of one.

    `digest` is "" where files of it are missing, `whole` that of the whole checkpoint that it is a part of.
    `changed` names the files that are not as they were proven, `repaired` those that were wrong and are right
    now. `answers`: it is what `request` asks for, as of `pinned`, with these `layers`; `is_whole`: with all.
    `leftover`: something of ours is in `source`. `in_place`: `served` is a link of ours to somebody's folder;
    `occupied`: it is a folder.
    """
    status: Status = {"digest": "", "whole": "", "answers": False, "is_whole": False, "pinned": ""}
    status |= {"changed": [], "repaired": [], "files": {}, "in_place": is_in_place(served)}
    status["occupied"] = served.is_dir() and not served.is_symlink()
    # A folder that is to be used in place has notes of ours, and is not ours.
    status["leftover"] = bool(source and (source / STATE_FOLDER).is_dir() and not request.is_for(source))
    manifest = manifests.load(served)
    if manifest is None:
        return status
    wrong = changed_files(served, manifest)
    converted = "converted_from" in manifest.origin
    part = read_layers(manifest.origin.get(LAYERS, ""))
    # The index of a part is no file of the checkpoint.
    files = manifest.files.keys() - ({INDEX} if part else set())
    return status | {
        "digest": "" if wrong else manifest.digest,
        "whole": "" if wrong else manifest.whole,
        "answers": request.origin.items() <= manifest.origin.items()
        and converted == (source is not None)
        and (part is None or (layers is not None and set(layers) <= set(part))),
        "is_whole": part is None,
        "pinned": manifest.origin.get("pinned", ""),
        "changed": wrong,
        "repaired": repaired_files(served, manifest),
        # 16 digits are enough to name the files in which two nodes differ.
        "files": {name: manifest.files[name].xxh3[:16] for name in sorted(files)},
    }


def pinned_now(request: FetchRequest) -> str:
    """What a folder on this node holds now, to compare with `pinned`; "" for a hub, which is not asked."""
    return PathSource(request.model).list().pinned if request.source == FOLDER.name else ""
