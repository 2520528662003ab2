"""Wait until an engine serves; end on all hosts as soon as one of its ranks dies."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ansible import constants, context
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible_collections.headfirst.serving.plugins.module_utils import docker_api
from ansible_collections.headfirst.serving.plugins.modules import await_ranks as documented
from ansible_collections.headfirst.serving.plugins.plugin_utils import failure_causes as causes
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import Profile, profile
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line, Symptom, Weight
from ansible_collections.headfirst.serving.plugins.plugin_utils.gated_action import (
    GatedAction,
    argument_spec,
    report,
)
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
MAX_ERRORS = 3


class ActionModule(GatedAction):
    """`await_ranks`: one waiter a host, all at once, sharing a board on the controller."""

    _supports_check_mode = True
    _requires_connection = True

    ARGUMENTS = argument_spec(documented.DOCUMENTATION, "api_key")
    ANSWERS: ClassVar[dict[str, Any]] = {
        WATCH: {
            **dict.fromkeys(("exists", "running", "ready", "oom_killed"), "bool"),
            "probe": "str",
            "exit_code": "int",
            **dict.fromkeys(("finished_at", "driver", "cuda"), "str"),
            "now": "float",
            "log": {"type": "list", "elements": "str"},
        }
    }
    RETURNS = ("answer", "failure", "ranks")

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return {"changed", "answer"}, or a failure with `failure` (where it began) and `ranks`."""
        if self._task.check_mode:
            return {"changed": False, "skipped": True, "msg": "Nothing was started in check mode."}
        if context.CLIARGS["forks"] < len(arguments["hosts"]):
            raise AnsibleActionFail(
                f"{len(arguments['hosts'])} ranks are watched at the same time, and Ansible runs "
                f"{context.CLIARGS['forks']} hosts at a time: set ANSIBLE_FORKS={len(arguments['hosts'])}."
            )
        # Made and removed by this run of Ansible; the task's id is the same on every host.
        board = RankBoard(Path(constants.DEFAULT_LOCAL_TMP) / f"ranks-{self._task._uuid}")
        host = self._host
        if arguments["start_error"]:
            log = profile(arguments["engine_log"])
            verdict = _not_started(host, arguments["rank"], arguments["start_error"], log)
            board.post(verdict)
        else:
            verdict = self._wait(arguments, host, board)
        return _outcome(verdict, board, len(arguments["hosts"]))

    def _wait(self, args: dict[str, Any], host: str, board: RankBoard) -> Verdict:
        """Watch, post and read until this rank is decided or another one has ended the wait."""
        log = profile(args["engine_log"])
        deadline = time.monotonic() + args["timeout"]
        dying_until = echo_until = float("inf")
        told = ""
        watch_s = 0  # an engine that serves already is seen at once
        while True:
            seen = self._look(args, host, watch_s, board)
            log = replace(log, facts={"driver": seen["driver"], "cuda": seen["cuda"]})
            now = time.monotonic()
            # What the module took to come back is in the offset: a second, which is less than SLACK_S.
            ahead_s = seen["now"] - time.time()
            lines = causes.stamped(seen["log"], ahead_s, time.time())
            dying = causes.died_at(log, lines) is not None
            if dying:
                dying_until = min(dying_until, now + DYING_GRACE_S)
            verdict = judge(host, args["rank"], seen, lines, log, ahead_s, gone_wrong=now > dying_until)
            if verdict.kind == ALIVE and now > deadline:
                verdict = _late(verdict, args["timeout"], seen["probe"])
            board.post(verdict)
            if args["rank"] == 0:
                watch_s = WATCH_S
            elif verdict.kind == ALIVE:
                _until_news(board, args["rank"], max(LOOK_EVERY_S, len(args["hosts"]) / LOOKS_A_SECOND))
            others = {rank: kind for rank, kind in board.kinds().items() if rank != args["rank"]}
            if verdict.kind == ALIVE and others.get(0) == READY and not dying:
                verdict = replace(verdict, kind=READY, doing="ready", symptoms=[])
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
        module_args = {
            "name": args["name"],
            "seconds": watch_s,
            "timestamps": True,
            "api_key": args["api_key"],
        }
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
            reason = f"the connection to the node was lost ({error})"
            board.post(_failed(host, args["rank"], UNREACHABLE, reason, hint))
            raise
        if seen.get("failed"):
            what = f"it cannot be watched: {seen.get('msg', 'no reason')}"
            hint = f"Check Docker on {host}: systemctl status docker"
            board.post(_failed(host, args["rank"], DIED, what, hint))
            raise AnsibleActionFail(what)
        return seen


def _outcome(verdict: Verdict, board: RankBoard, ranks: int) -> dict[str, Any]:
    """Return the task's result, which is the same on all hosts: done when every rank is, else failed."""
    end = time.monotonic() + SETTLE_S + max(WATCH_S, ranks / LOOKS_A_SECOND)
    while not _settled(board.kinds().values(), ranks) and time.monotonic() < end:
        time.sleep(BOARD_EVERY_S)
    if verdict.kind == READY and all(kind >= ALIVE for kind in board.kinds().values()):
        return {"changed": False, "answer": verdict.state}
    verdicts = board.read()
    first, cause, text = explain(verdicts)
    return {
        "failed": True,
        "msg": text,
        "failure": {
            "host": first.host,
            "rank": first.rank,
            "kind": min(v.kind for v in verdicts),
            "reason": first.describe(cause),
            "lines": cause.lines,
            "hint": cause.fix,
        },
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


def _not_started(host: str, rank: int, error: str, log: Profile) -> Verdict:
    rule = log.match(error)
    means, fix = (
        rule.words(error, log.facts) if rule else ("", "Correct that, then run the same command again.")
    )
    what = f"its container did not start: {error.rstrip('.')}" + (f" ({means})" if means else "")
    return _failed(host, rank, DIED, what, fix)


def _failed(host: str, rank: int, kind: int, reason: str, hint: str) -> Verdict:
    """Return the verdict on a rank whose state alone is the reason."""
    return Verdict(host, rank, kind, reason, [_symptom("cause", reason, hint)])


def _symptom(weight: Weight, means: str, fix: str) -> Symptom:
    return Symptom(time.time(), "", [], weight, means, fix, [])


def judge(
    host: str,
    rank: int,
    seen: dict[str, Any],
    lines: list[Line],
    log: Profile,
    ahead_s: float,
    gone_wrong: bool,
) -> Verdict:
    """Return what one reading of a rank means; `lines` are of its log.

    `ahead_s` is how far the node's clock is ahead. `gone_wrong`: the rank logged its end a while ago.
    """
    doing = log.doing([line.text for line in lines]) or "starting"
    if seen["ready"]:
        return Verdict(host, rank, READY, seen["probe"], doing="ready")
    if not seen["exists"]:
        hint = "Run the same command again: it recreates the container."
        return _failed(host, rank, DIED, "there is no container", hint)
    symptoms = [symptom for symptom in causes.in_log(log, lines) if symptom.weight != "note"]
    if seen["running"] and not gone_wrong:
        # A rank that runs may have survived what a general rule matches.
        known = [symptom for symptom in symptoms if symptom.weight != "general"]
        return Verdict(host, rank, ALIVE, "running", known, doing=doing)
    exit_code = None if seen["running"] else seen["exit_code"]
    how = "it hangs after a crash" if exit_code is None else f"it ended with exit code {exit_code}"
    finished_at = docker_api.seconds(seen["finished_at"]) - ahead_s if seen["finished_at"] else time.time()
    end = causes.end_of(
        log,
        lines,
        symptoms,
        rank=rank,
        ended=causes.died_at(log, lines, finished_at),
        exit_code=exit_code,
        oom_killed=seen["oom_killed"],
    )
    symptoms += [end] if end else []
    if not symptoms:
        hint = f"Read its log on {host}: docker logs CONTAINER"
        symptoms = [_symptom("general", f"{how}, and its log has no reason", hint)]
    errors = [log.shown(line.text) for line in lines if log.any_error.search(line.text)]
    first = causes.decisive(symptoms)
    kind = ECHO if first and first.weight == "consequence" else DIED
    return Verdict(host, rank, kind, how, symptoms, errors[:MAX_ERRORS], doing)


def _late(verdict: Verdict, timeout_s: int, probe: str) -> Verdict:
    reason = f"not ready after {timeout_s} s" + (f", last answer: {probe}" if probe else "")
    hint = (
        "Raise ready_timeout if a rank was still busy; a rank that waits shows that another one is missing."
    )
    symptoms = [*verdict.symptoms, _symptom("hang", reason, hint)]
    return replace(verdict, kind=LATE, state=reason, symptoms=symptoms)
