"""ansible-runner's events → our own (events.py).

A play named `<Stage> | <what it does>` belongs to that stage: `Host | Install Docker` and `Host | Load the
image` are two plays of the stage `host`. A play without the bar is a stage of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

from headfirst.control.run import events
from headfirst.control.run.messages import failure_message, findings

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


# These run on the controller. A node can put any key into the result of a module that it runs.
_PUBLISHES = {"ansible.builtin.set_stats", "ansible.legacy.set_stats", "set_stats"}
_FINDS = {
    "ansible.builtin.debug",
    *(f"headfirst.serving.{name}" for name in ("check_report", "comm_report", "rollout")),
}


class Translator:
    """Turns one run's events into ours; keeps the current stage between calls.

    A stage starts with its first task, not with its play: a play that no host takes part in stays unseen.
    """

    def __init__(self) -> None:
        self._play = PlayName("", "")
        self.stage = ""
        self._stage_since = 0.0
        self._stage_changed = 0
        self._stage_failed: dict[str, None] = {}

    def translate(self, event: dict[str, Any]) -> Iterator[events.Event]:
        """Our events for one event of ansible-runner, none for most kinds."""
        kind = event["event"]
        data = event.get("event_data", {})
        if kind == "playbook_on_play_start":
            self._play = parse_play_name(data["name"])
        elif kind == "playbook_on_stats":
            yield from self.finish(completed=True)
        elif kind == "runner_on_start":
            yield from self._enter_stage()
            # A host that goes on after a failure was rescued.
            self._stage_failed.pop(data["host"], None)
            yield events.TaskStarted(self.stage, data["host"], _task_name(data))
        elif kind in ("runner_on_ok", "runner_on_skipped"):
            yield from self._task_done(data)
        elif kind == "runner_on_failed" and data.get("ignore_errors"):
            yield from self._task_done({**data, "res": {}})
        elif kind in ("runner_on_failed", "runner_on_unreachable"):
            yield from self._failed(data, unreachable=kind == "runner_on_unreachable")

    def finish(self, *, completed: bool) -> Iterator[events.Event]:
        """End the current stage, if one is open; `completed` is false when the run was broken off in it."""
        if self.stage:
            seconds = time.monotonic() - self._stage_since
            failed = tuple(self._stage_failed)
            yield events.StageDone(self.stage, seconds, self._stage_changed, failed, completed)
            self.stage = ""

    def _enter_stage(self) -> Iterator[events.Event]:
        if self._play.stage == self.stage:
            return
        yield from self.finish(completed=True)
        self.stage = self._play.stage
        self._stage_since = time.monotonic()
        self._stage_changed = 0
        self._stage_failed = {}
        yield events.StageStarted(self._play.stage, self._play.title)

    def _task_done(self, data: dict[str, Any]) -> Iterator[events.Event]:
        result = data.get("res") or {}
        changed = bool(result.get("changed"))
        self._stage_changed += changed
        yield from self._findings(data, result)
        yield events.TaskDone(
            self.stage, data["host"], _task_name(data), changed, data.get("duration") or 0.0
        )

    def _failed(self, data: dict[str, Any], unreachable: bool) -> Iterator[events.Event]:
        result = data.get("res") or {}
        self._stage_failed[data["host"]] = None
        yield from self._findings(data, result)
        message = failure_message(result)
        yield events.HostFailed(self.stage, data["host"], _task_name(data), message, unreachable, result)

    def _findings(self, data: dict[str, Any], result: dict[str, Any]) -> Iterator[events.Event]:
        host = data["host"]
        if data.get("task_action") in _FINDS and (reported := findings(result)):
            yield events.FindingsReported(self.stage, host, tuple(_finding(item, host) for item in reported))


def _finding(item: dict[str, Any], host: str) -> events.Finding:
    texts = {field.name: str(item.get(field.name) or "") for field in fields(events.Finding)}
    return events.Finding(**{**texts, "host": texts["host"] or host})


def published(event: dict[str, Any]) -> dict[str, Any]:
    """What a task of `ansible.builtin.set_stats` has published; {} for every other event.

    ansible-core also collects `ansible_stats` of modules' results, where a node may speak for another one.
    """
    data = event.get("event_data", {})
    if event["event"] != "runner_on_ok" or data.get("task_action") not in _PUBLISHES:
        return {}
    return dict(data["res"]["ansible_stats"]["data"])


def _task_name(data: dict[str, Any]) -> str:
    """The task's own words: handlers carry their role's name in front (`docker_engine : Restart Docker`)."""
    name = str(data.get("task") or "")
    return name.rpartition(" : ")[2] or name
