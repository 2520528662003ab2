"""Which family a checkpoint belongs to, by its architecture and its id (families.json)."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import Literal

from headfirst.decide.frozen import Frozen
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.task import Task
from headfirst.decide.package_data import read_json


class Family(Frozen):
    """Models that share a chat format. `task`: what the checkpoint is for.

    `thinks` is False where the model answers without a reasoning part.
    """

    name: str
    title: str
    ids: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    task: Task = "chat"
    thinks: bool = True
    code: Literal["needed", "unneeded"] | None = (
        None  # of Python files that a checkpoint brings; None: not known
    )


@cache
def families() -> tuple[Family, ...]:
    """All entries, in the order in which they are tried; a name may have several."""
    return tuple(map(Family.model_validate, read_json(__package__, "families.json")["families"]))


def find(checkpoint: Checkpoint) -> Family | None:
    """The first family that matches; None for a model that no entry describes.

    The id is a hub id or a folder: its last part counts, in any case of letters.
    """
    return _find(_name(checkpoint.id), checkpoint.architecture)


@lru_cache(maxsize=1024)  # a plan asks for each rule, and a survey of the catalogue for each plan
def _find(name: str, architecture: str) -> Family | None:
    matching = (
        family
        for family in families()
        if _matches(name, family.ids) and _matches(architecture, family.architectures)
    )
    return next(matching, None)


def task(checkpoint: Checkpoint) -> Task:
    """What the checkpoint is for, as its family states, else as its architecture does."""
    family = find(checkpoint)
    task: Task = family.task if family else checkpoint.tasks[0]
    return "completion" if task == "chat" and checkpoint.chat_template is False else task


def task_of_id(id: str) -> Task:
    """What a model is for by its id alone, where no checkpoint is described."""
    family = next((family for family in families() if family.ids and _matches(_name(id), family.ids)), None)
    return family.task if family else "chat"


def _name(id: str) -> str:
    return id.rstrip("/").rpartition("/")[2].lower()


def _matches(text: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)
