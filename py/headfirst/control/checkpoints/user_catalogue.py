"""The user's part of the catalogue: what was read from a hub, and above it a file of the user's own.

`deploy models --refresh` writes the first (`~/.local/share/headfirst/catalogue.json`), the user the second
(`~/.config/headfirst/catalogue.json`). Both have the format of the built-in catalogue.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headfirst.common.errors import HeadfirstError, InputError
from headfirst.common.state_files import exclusive, replace_file
from headfirst.common.untrusted import UntrustedError, json_document
from headfirst.control.paths import config_file, user_data_dir
from headfirst.decide.model import catalogue, releases
from headfirst.decide.model.catalogue_entries import checked
from headfirst.decide.model.measured import Measured

if TYPE_CHECKING:
    from headfirst.control.checkpoints.hub import Sent

_NAME = "catalogue.json"
_MOST_BYTES = 64 << 20
_AGAIN = "Delete the file; `deploy models --refresh` writes it again."


def load() -> None:
    """Extend the catalogue by the user's entries. InputError that names the file and the entry."""
    extension: dict[str, dict[str, Any]] = {}
    for path, hint in ((refreshed_file(), _AGAIN), (config_file(_NAME), None)):
        entries = _read(path, extension, hint)
        added = {id.lower() for id in entries}
        extension = {id: entry for id, entry in extension.items() if id.lower() not in added} | entries
        catalogue.extend(extension)
        for id in entries:
            try:
                catalogue.lookup(id)
            except HeadfirstError as error:
                raise InputError(f"the entry {id}: {error.what}", where=str(path), hint=hint) from None


def refreshed_file() -> Path:
    """The file that `deploy models --refresh` writes."""
    return user_data_dir() / _NAME


def store(id: str, entry: dict[str, Any]) -> Literal["new", "changed", "same"]:
    """Write one entry; return whether it is `new`, `changed` or the `same` as before."""
    path = refreshed_file()
    with exclusive(path.parent):
        entries = _read(path, {}, _AGAIN)
        before = entries.get(id)
        if before == entry:
            return "same"
        replace_file(path, json.dumps({**entries, id: entry}, indent=1))
    return "changed" if before else "new"


def entry_of(sent: Sent, hub: str) -> dict[str, Any]:
    """The catalogue's entry of what a hub sent."""
    checkpoint = sent.checkpoint
    measured = Measured(
        checkpoint.bytes_by_dtype,
        checkpoint.bytes_by_part,
        checkpoint.bf16_bytes_by_part,
        checkpoint.nextn_layers,
    )
    entry: dict[str, Any] = {
        "source": f"{hub}, {sent.content or 'no commit'}: config.json, and headers and sizes of the files",
        "weights": {
            "total_bytes": checkpoint.total_bytes,
            "total_bytes_are": f"published: sum of the {len(checkpoint.shards)} weight files",
            "files": {shard.name: shard.bytes or 0 for shard in checkpoint.shards},
            "measured": asdict(measured),
        },
        "config": sent.config,
    }
    if sent.created and releases.find(checkpoint.id) is None:
        entry["released"] = sent.created
    if checkpoint.sentence_transformers:
        entry["sentence_transformers"] = True
    if checkpoint.chat_template is not None:
        entry["chat_template"] = checkpoint.chat_template
    if sent.quantization:
        entry["hf_quant_config"] = sent.quantization
    return entry


def _read(path: Path, entries: Mapping[str, dict[str, Any]], hint: str | None) -> dict[str, dict[str, Any]]:
    """The entries of a file; none where it is missing."""
    try:
        if not path.is_file():
            return {}
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        document = json_document(data, what="the catalogue", limit=_MOST_BYTES)
        return checked(document, where=str(path), known={**catalogue.built_in(), **entries})
    except OSError as error:
        raise InputError(f"the catalogue cannot be read: {error.strerror}", where=str(path)) from None
    except UntrustedError as error:
        raise InputError(error.what, where=str(path), hint=hint) from None
    except InputError as error:
        raise InputError(error.what, where=error.where, hint=error.hint or hint) from None
