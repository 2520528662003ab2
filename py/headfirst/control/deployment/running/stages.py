"""The stages of `deploy up` in their order: the one list that runs, `-t`, `-l` and their help read.

What comes before the first stage is in `deployment/verbs/up.py`: files of a bundle, and drivers
where the plan waits for them. tests/unit/test_stages.py compares the list with the playbooks and the pages.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Literal, NamedTuple

from headfirst.common.errors import InputError

Scope = Literal["cluster", "service", "companion", "replica"]

# Groups whose stages act on all ranks together, and take no --limit.
ALL_RANKS = ("weights", "serve")
# Playbooks that up.yml does not import: other runs have no variables for the hosts of their plays.
ALONE = ("standby.yml", "compile_cache.yml", "prune.yml", "close.yml", "monitoring.yml")


class Stage(NamedTuple):
    """A play `<Name> | …` of `playbook`, with the tags `group` and `name`. It runs once for each `scope`."""

    name: str
    group: str
    playbook: str
    scope: Scope


STAGES = (
    Stage("check", "check", "check.yml", "cluster"),
    Stage("tuning", "host", "machine.yml", "cluster"),
    Stage("driver", "host", "machine.yml", "cluster"),
    Stage("rdma", "host", "machine.yml", "cluster"),
    Stage("docker", "host", "machine.yml", "cluster"),
    Stage("toolkit", "host", "machine.yml", "cluster"),
    Stage("tools", "host", "machine.yml", "cluster"),
    Stage("supervisor", "host", "machine.yml", "cluster"),
    Stage("image", "host", "image.yml", "service"),
    Stage("weights", "weights", "weights.yml", "service"),
    Stage("weights", "weights", "weights.yml", "companion"),
    Stage("router", "router", "router.yml", "service"),
    Stage("engine", "serve", "serve.yml", "replica"),
    Stage("standby", "serve", "standby.yml", "replica"),
    Stage("engine", "serve", "compile_cache.yml", "replica"),
    Stage("engine", "serve", "prune.yml", "service"),
    Stage("router", "serve", "deregister.yml", "service"),
    Stage("webui", "webui", "webui.yml", "cluster"),
    Stage("proxy", "proxy", "proxy.yml", "cluster"),
    Stage("proxy", "proxy", "close.yml", "cluster"),
    Stage("monitoring", "monitoring", "monitoring.yml", "cluster"),
)
NAMES = tuple(dict.fromkeys(stage.name for stage in STAGES))
GROUPS = tuple(dict.fromkeys(stage.group for stage in STAGES))
TAGS = tuple(dict.fromkeys(tag for stage in STAGES for tag in (stage.group, stage.name)))
_HOST_TAGS = {tag for stage in STAGES if stage.group not in ALL_RANKS for tag in (stage.group, stage.name)}


def tags_of(playbook: str) -> set[str]:
    """The tags of the stages of a playbook, or of all that up.yml imports."""
    single = [stage for stage in STAGES if stage.playbook == playbook]
    stages = single or [stage for stage in STAGES if stage.playbook not in ALONE]
    return {tag for stage in stages for tag in (stage.group, stage.name)}


def starts_ranks(tags: Sequence[str]) -> bool:
    """Whether a run of these tags starts ranks; no tags are all stages."""
    return not tags or not {"serve", "engine"}.isdisjoint(tags)


def complete(incomplete: str) -> list[str]:
    """The tags that begin so, for the completion of `-t`."""
    return [tag for tag in TAGS if tag.startswith(incomplete)]


def checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """The tags of `-t` one by one: each may hold several with commas. InputError for an unknown one."""
    words = [tag.strip() for text in tags for tag in text.split(",") if tag.strip()]
    for tag in words:
        if tag not in TAGS:
            near = difflib.get_close_matches(tag, TAGS, n=1)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise InputError(f"no stage has the tag {tag!r}", hint=f"{hint}Tags: {', '.join(TAGS)}.")
    return tuple(words)


def refuse_limit(limit: str | None, tags: Sequence[str]) -> None:
    """Raise InputError where `-l` would leave out ranks of a stage that needs all of them."""
    if limit is None or (tags and set(tags) <= _HOST_TAGS):
        return
    together = [tag for tag in tags if tag not in _HOST_TAGS]
    what = f"stage {together[0]} acts" if together else f"the stages {' and '.join(ALL_RANKS)} act"
    raise InputError(
        f"{what} on all ranks together, without --limit",
        hint=f"Prepare the hosts alone: -l {limit} -t host. Or run it on all hosts, without --limit.",
    )
