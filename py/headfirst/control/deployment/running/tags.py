"""The tags that `-t` takes: those of the plays of `deploy up`, read from the playbooks themselves."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import yaml

from headfirst.collection import collection_root
from headfirst.common.errors import InputError


def checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """The tags of `-t` one by one: each may hold several with commas. InputError for one that no play has."""
    known = stage_tags()
    wanted = [tag.strip() for text in tags for tag in text.split(",") if tag.strip()]
    for tag in wanted:
        if tag not in known:
            near = difflib.get_close_matches(tag, known, n=1)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise InputError(f"no stage has the tag {tag!r}", hint=f"{hint}Tags: {', '.join(known)}.")
    return tuple(wanted)


@cache
def stage_tags() -> tuple[str, ...]:
    """Every tag of a play of `up`, in the order of the plays."""
    return (*playbook_tags("up.yml"), *playbook_tags("monitoring.yml"))


def playbook_tags(name: str) -> tuple[str, ...]:
    """Every tag of a play of a playbook of ours, in the order of the plays."""
    return tuple(dict.fromkeys(_tags(collection_root() / "playbooks" / name)))


def _tags(playbook: Path) -> Iterator[str]:
    for play in yaml.safe_load(playbook.read_text(encoding="utf-8")):
        if imported := play.get("ansible.builtin.import_playbook"):
            yield from _tags(playbook.parent / imported)
        yield from play.get("tags", ())
