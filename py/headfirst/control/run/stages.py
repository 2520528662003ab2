"""Stages: what a person follows. A play named `<Stage> | <what it does>` belongs to that stage.

`Host | Install Docker` and `Host | Load the image` are two plays of the stage `host`. A play without
the bar is a stage of its own. Stages keep the order in which their plays run.
"""

from __future__ import annotations

from typing import NamedTuple

SEPARATOR = "|"


class PlayName(NamedTuple):
    """A play's name taken apart: the stage it belongs to and the text for people."""

    stage: str
    title: str


def parse_play_name(name: str) -> PlayName:
    """`"Host | Install Docker"` → `PlayName("host", "Install Docker")`."""
    stage, bar, title = name.partition(SEPARATOR)
    if not bar:
        return PlayName(name.strip(), name.strip())
    return PlayName(stage.strip().lower(), title.strip())
