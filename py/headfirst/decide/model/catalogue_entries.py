"""Check of a catalogue that a person or a hub wrote, entry by entry. The format is that of catalogue.json."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import HUB_ID
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from headfirst.common.errors import HeadfirstError, InputError
from headfirst.common.safetensors_file import DTYPE_BITS
from headfirst.common.untrusted import UntrustedError, file_listing, json_object, line, shown
from headfirst.decide.model.measured import Part
from headfirst.decide.untrusted_model import validated

Entry = dict[str, Any]
RELEASED = re.compile(r"20\d\d(-(0[1-9]|1[0-2]))?", re.ASCII)
_SHARD_NAME = re.compile(r"[\w.-]*(\{:0?\d{0,2}d?\}[\w.-]*)?", re.ASCII)


def _text(value: str) -> str:
    return line(value, what="a text", limit=2000)


def _released(value: str) -> str:
    if not RELEASED.fullmatch(value):
        raise ValueError("it is not a month such as 2025-07, or a year")
    return value


def _shard_name(value: str) -> str:
    if not value or not _SHARD_NAME.fullmatch(value):
        raise ValueError("it is not a name such as model-{:05d}-of-00004.safetensors")
    return value


def _listed(files: dict[str, int]) -> dict[str, int]:
    file_listing(files)
    return files


_Text = Annotated[str, AfterValidator(_text)]
_Count = Annotated[int, Field(ge=0, le=1 << 50)]
_Dtype = Annotated[str, Field(pattern=f"^({'|'.join(DTYPE_BITS)})$")]
_Part = Annotated[str, Field(pattern=f"^({'|'.join(part.value for part in Part)})$")]


class _StrictEntry(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Measured(_StrictEntry):
    by_dtype: dict[_Dtype, _Count]
    by_part: dict[_Part, _Count]
    bf16_by_part: dict[_Part, _Count]
    draft_layers: _Count = 0


class _Weights(_StrictEntry):
    total_bytes: _Count = 0
    total_bytes_are: _Text = ""
    parameters: dict[_Dtype, _Count] = {}
    published_parameters: _Count = 0
    shards: Annotated[int, Field(ge=1, le=100_000)] = 1
    shard_name: Annotated[str, AfterValidator(_shard_name)] = ""
    plain_parts: list[_Part] = []
    tied_head_stored: bool = False
    stored: dict[_Part, dict[_Dtype, _Count]] = {}
    bf16: dict[_Part, _Count] = {}
    files: Annotated[dict[str, _Count], AfterValidator(_listed)] = {}
    measured: _Measured = _Measured(by_dtype={}, by_part={}, bf16_by_part={})


class _Fields(_StrictEntry):
    """What an entry may have; `remote_code` is for the built-in catalogue alone."""

    source: _Text = ""
    config: dict[str, Any] = {}
    same_as: _Text = ""
    changes: dict[str, Any] = {}
    weights: _Weights = _Weights()
    sentence_transformers: bool = False
    chat_template: bool = False
    hf_quant_config: dict[str, Any] = {}
    released: Annotated[str, AfterValidator(_released)] = ""


def checked(document: Any, *, where: str, known: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entries by hub id. `known`: other entries that `same_as` may name.

    Raises InputError at `where` that names the entry and what is wrong in it.
    """
    entries: dict[str, Entry] = {}
    try:
        for id, entry in json_object(document, what="a catalogue", limit=100_000).items():
            if not HUB_ID.fullmatch(id):
                raise UntrustedError(f"{shown(id)} is not a hub's id, such as Qwen/Qwen3-32B")
            entries[id] = _entry(id, entry, where)
        _check_bases(entries, known)
    except HeadfirstError as error:
        raise InputError(error.what, where=where, hint=error.hint) from None
    return entries


def _entry(id: str, entry: Any, where: str) -> Entry:
    fields = json_object(entry, what=f"the entry {id}")
    if "remote_code" in fields:
        raise UntrustedError(
            f"the entry {id} has remote_code, which the built-in catalogue alone may have",
            hint="Set trust_remote_code=true in the inventory after you have read the model's Python files.",
        )
    if unknown := sorted(fields.keys() - _Fields.model_fields.keys()):
        raise UntrustedError(
            f"the entry {id} has an unknown key: {shown(unknown[0])}",
            hint=f"Keys of an entry: {', '.join(_Fields.model_fields)}.",
        )
    validated(_Fields, fields, what=f"the entry {id} is", where=where)
    required = () if "same_as" in fields else ("source", "config", "weights")
    if missing := [name for name in required if name not in fields]:
        raise UntrustedError(f"the entry {id} has no {missing[0]}")
    return fields


def _check_bases(entries: Mapping[str, Entry], known: Mapping[str, Entry]) -> None:
    every = {**known, **entries}
    for id in entries:
        chain = [id]
        while base := every[chain[-1]].get("same_as"):
            if base not in every:
                raise UntrustedError(f"same_as of the entry {id}: the catalogue has no {shown(base)}")
            if base in chain:
                raise UntrustedError(f"same_as of the entry {id} leads back to {base}")
            chain.append(base)
