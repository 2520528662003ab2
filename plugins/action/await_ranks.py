"""Wait until an engine serves; end on all hosts as soon as one of its ranks dies."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ansible import constants, context
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import Profile, profile
from ansible_collections.headfirst.serving.plugins.plugin_utils.gated_action import GatedAction
from ansible_collections.headfirst.serving.plugins.plugin_utils.progress import report
from ansible_collections.headfirst.serving.plugins.plugin_utils.rank_board import (
    ALIVE,
    DIED,
    ECHO,
    LATE,
    READY,
    UNREACHABLE,
    RankBoard,
    Verdict,
    explain,
)

# Rank 0 is watched on its node this long at a time, so that its first answer is seen within a second.
WATCH_S = 4
# The others are read in turns, so that this machine starts at most ten reads a second.
LOOK_EVERY_S = 4.0
LOOKS_A_SECOND = 10
# Between two reads the verdicts on the other ranks are read this often.
BOARD_EVERY_S = 0.2
# An engine that has logged its end gets this long to be gone; some never go.
DYING_GRACE_S = 10.0
# When all that is known is that a rank lost its peer, the peer gets this long to report why.
SETTLE_S = 12.0
WATCH = "headfirst.serving.container_watch"
KILLED = 137  # 128 + SIGKILL
_READINESS = {
    "path": {"type": "str", "required": True},
    "probe_path": {"type": "str", "required": True},
    "probe_body": {"type": "dict", "required": True},
    "answer": {"type": "list", "elements": "str", "required": True},
}


class ActionModule(GatedAction):
    """`await_ranks`: one waiter a host, all at once, sharing a board on the controller."""

    _supports_check_mode = True
    _requires_connection = True

    ARGUMENTS: ClassVar[dict[str, Any]] = {
        "name": {"type": "str", "required": True},
        "rank": {"type": "int", "required": True},
        "hosts": {"type": "list", "elements": "str", "required": True},
        "start_error": {"type": "str", "default": ""},
        "url": {"type": "str", "required": True},
        "model": {"type": "str", "required": True},
        "api_key": {"type": "str", "no_log": True},
        "readiness": {"type": "dict", "required": True, "options": _READINESS},
        "engine_log": {"type": "dict", "default": {}},
        "timeout": {"type": "int", "default": 3600},
    }
    ANSWERS: ClassVar[dict[str, Any]] = {
        WATCH: {
            **dict.fromkeys(("exists", "running", "ready", "oom_killed"), "bool"),
            "probe": "str",
            "exit_code": "int",
            "log": {"type": "list", "elements": "str"},
        }
    }
    RETURNS = ("answer", "failure", "ranks")

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Return {"changed", "answer"}, or a failure with `failure` (the deciding Verdict) and `ranks`."""
        if self._task.check_mode:
            return {"changed": False, "skipped": True, "msg": "Nothing was started in check mode."}
        if context.CLIARGS["forks"] < len(args["hosts"]):
            raise AnsibleActionFail(
                f"{len(args['hosts'])} ranks are watched at the same time, and Ansible runs "
                f"{context.CLIARGS['forks']} hosts at a time: set ANSIBLE_FORKS={len(args['hosts'])}."
            )
        # Made and removed by this run of Ansible; the task's id is the same on every host.
        board = RankBoard(Path(constants.DEFAULT_LOCAL_TMP) / f"ranks-{self._task._uuid}")
        host = self._host
        if args["start_error"]:
            verdict = _not_started(host, args["rank"], args["start_error"])
            board.post(verdict)
        else:
            verdict = self._wait(args, host, board)
        return _outcome(verdict, board, len(args["hosts"]))

    def _wait(self, args: dict[str, Any], host: str, board: RankBoard) -> Verdict:
        """Watch, post and read until this rank is decided or another one has ended the wait."""
        log = profile(args["engine_log"])
        deadline = time.monotonic() + args["timeout"]
        dying_until = echo_until = float("inf")
        told = ""
        watch_s = 0  # an engine that serves already is seen at once
        while True:
            seen = self._look(args, host, watch_s, board)
            now = time.monotonic()
            dying = any(log.dying.search(line) for line in seen["log"])
            if dying:
                dying_until = min(dying_until, now + DYING_GRACE_S)
            verdict = judge(host, args["rank"], seen, log, gone_wrong=now > dying_until)
            if verdict.kind == ALIVE and now > deadline:
                verdict = _late(verdict, args["timeout"], seen["probe"])
            board.post(verdict)
            if args["rank"] == 0:
                watch_s = WATCH_S
            elif verdict.kind == ALIVE:
                _until_news(board, args["rank"], max(LOOK_EVERY_S, len(args["hosts"]) / LOOKS_A_SECOND))
            others = {rank: kind for rank, kind in board.kinds().items() if rank != args["rank"]}
            if verdict.kind == ALIVE and others.get(0) == READY and not dying:
                verdict = replace(verdict, kind=READY, doing="ready")
                board.post(verdict)
            if verdict.doing != told:
                told = verdict.doing
                report(host, "engine", note=told)
            if verdict.kind != ALIVE:
                return verdict
            if any(kind in (DIED, UNREACHABLE, LATE) for kind in others.values()):
                return verdict
            now = time.monotonic()
            if ECHO in others.values():
                # Another rank lost its peer: this one may be about to report why.
                echo_until = min(echo_until, now + SETTLE_S)
            if now > echo_until:
                return verdict

    def _look(self, args: dict[str, Any], host: str, watch_s: int, board: RankBoard) -> dict[str, Any]:
        module_args = {"name": args["name"], "seconds": watch_s, "api_key": args["api_key"]}
        if args["rank"] == 0:  # the others do not answer, or they do whatever their state
            readiness = args["readiness"]
            probe = {
                "path": readiness["probe_path"],
                "body": {**readiness["probe_body"], "model": args["model"]},
                "answer": readiness["answer"],
            }
            module_args.update(url=args["url"], path=readiness["path"], probe=probe)
        try:
            seen = self.ask_module(WATCH, module_args)
        except AnsibleConnectionFailure as error:
            hint = f"Check the node and its SSH, then run the same command again: ssh {host}"
            board.post(
                Verdict(
                    host, args["rank"], UNREACHABLE, f"the connection to the node was lost ({error})", hint
                )
            )
            raise
        if seen.get("failed"):
            what = f"it cannot be watched: {seen.get('msg', 'no reason')}"
            hint = f"Check Docker on {host}: systemctl status docker"
            board.post(Verdict(host, args["rank"], DIED, what, hint))
            raise AnsibleActionFail(what)
        return seen


def _outcome(verdict: Verdict, board: RankBoard, ranks: int) -> dict[str, Any]:
    """Return the task's result, which is the same on all hosts: done when every rank is, else failed."""
    end = time.monotonic() + SETTLE_S + max(WATCH_S, ranks / LOOKS_A_SECOND)
    while not _settled(board.kinds().values(), ranks) and time.monotonic() < end:
        time.sleep(BOARD_EVERY_S)
    if verdict.kind == READY and all(kind >= ALIVE for kind in board.kinds().values()):
        return {"changed": False, "answer": verdict.reason}
    verdicts = board.read()
    decisive, text = explain(verdicts)
    return {
        "failed": True,
        "msg": text,
        "failure": vars(decisive),
        "ranks": {v.host: v.reason for v in verdicts},
    }


def _until_news(board: RankBoard, rank: int, seconds: float) -> None:
    """Return after `seconds`, or as soon as another rank has ended or rank 0 serves."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        others = {other: kind for other, kind in board.kinds().items() if other != rank}
        if others.get(0) == READY or any(kind < ECHO for kind in others.values()):
            return
        time.sleep(BOARD_EVERY_S)


def _settled(kinds: Collection[int], ranks: int) -> bool:
    """Return whether the board decides: a rank ended for a reason of its own, or all are ready."""
    worst = min(kinds)
    return worst in (DIED, UNREACHABLE, LATE) or (worst == READY and len(kinds) == ranks)


def _not_started(host: str, rank: int, error: str) -> Verdict:
    hint = "Correct that, then run the same command again."
    return Verdict(host, rank, DIED, f"its container did not start: {error.rstrip('.')}", hint)


def judge(host: str, rank: int, seen: dict[str, Any], log: Profile, gone_wrong: bool) -> Verdict:
    """Return what one reading of a rank means; `gone_wrong`: it logged its end a while ago."""
    doing = log.doing(seen["log"]) or "starting"
    if seen["ready"]:
        return Verdict(host, rank, READY, seen["probe"], doing="ready")
    if not seen["exists"]:
        hint = "Run the same command again: it recreates the container."
        return Verdict(host, rank, DIED, "there is no container", hint)
    if seen["running"] and not gone_wrong:
        return Verdict(host, rank, ALIVE, "running", doing=doing)
    how = "hangs after a crash" if seen["running"] else f"ended with exit code {seen['exit_code']}"
    cause = log.find_cause(seen["log"])
    last = [log.shown(line) for line in seen["log"][-3:]]
    if seen["oom_killed"] or (cause is None and seen["exit_code"] == KILLED):
        hint = "Find the reason with `dmesg | grep -i oom` on that host; give the engine more memory."
        return Verdict(host, rank, DIED, f"it was killed ({how})", hint, last, doing)
    if cause is None:
        hint = f"Read its log on {host}: docker logs CONTAINER"
        return Verdict(host, rank, DIED, f"it {how} without a reason", hint, last, doing)
    kind = ECHO if cause.echo else DIED
    return Verdict(host, rank, kind, f"{cause.reason} (it {how})", cause.hint, cause.lines, doing)


def _late(verdict: Verdict, timeout_s: int, probe: str) -> Verdict:
    reason = f"not ready after {timeout_s} s" + (f", last answer: {probe}" if probe else "")
    hint = (
        "Raise ready_timeout if a rank was still busy; a rank that waits shows that another one is missing."
    )
    return replace(verdict, kind=LATE, reason=reason, hint=hint)
