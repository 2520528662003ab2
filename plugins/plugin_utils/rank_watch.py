"""Watching the ranks of an engine, one process a host, until they serve or one of them has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible_collections.headfirst.serving.plugins.module_utils import docker_api
from ansible_collections.headfirst.serving.plugins.plugin_utils import failure_causes as causes
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import Profile
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line, Symptom, Weight
from ansible_collections.headfirst.serving.plugins.plugin_utils.gated_action import report
from ansible_collections.headfirst.serving.plugins.plugin_utils.rank_board import (
    ALIVE,
    DIED,
    ECHO,
    LATE,
    READY,
    UNREACHABLE,
    RankBoard,
    RankVerdict,
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
MAX_ERRORS = 3


class RankWatch:
    """The watch on this host's rank, which shares a board with those on the other hosts."""

    def __init__(
        self,
        look: Callable[[int], dict[str, Any]],
        board: RankBoard,
        host: str,
        rank: int,
        ranks: int,
        log: Profile,
    ) -> None:
        """`look` runs container_watch on the host for so many seconds."""
        self._look, self._board, self._host = look, board, host
        self._rank, self._ranks, self._log = rank, ranks, log

    def wait(self, timeout_s: float) -> None:
        """Return when all ranks serve; AnsibleActionFail, the same on all hosts, when one ends."""
        verdict = self._wait(timeout_s)
        board, ranks = self._board, self._ranks
        end = time.monotonic() + SETTLE_S + max(WATCH_S, ranks / LOOKS_A_SECOND)
        while not _settled(board.kinds().values(), ranks) and time.monotonic() < end:
            time.sleep(BOARD_EVERY_S)
        if verdict.kind != READY or any(kind < ALIVE for kind in board.kinds().values()):
            raise AnsibleActionFail(explain(board.read())[2])

    def _wait(self, timeout_s: float) -> RankVerdict:
        """Watch, post and read until this rank is decided or another one has ended the wait."""
        deadline = time.monotonic() + timeout_s
        dying_until = echo_until = float("inf")
        told = ""
        watch_s = 0  # an engine that serves already is seen at once
        while True:
            seen = self._seen(watch_s)
            log = replace(self._log, facts={"driver": seen["driver"], "cuda": seen["cuda"]})
            now = time.monotonic()
            # What the module took to come back is in the offset: a second, which is less than SLACK_S.
            ahead_s = seen["now"] - time.time()
            lines = causes.stamped(seen["log"], ahead_s, time.time())
            dying = causes.died_at(log, lines) is not None
            if dying:
                dying_until = min(dying_until, now + DYING_GRACE_S)
            verdict = judge(self._host, self._rank, seen, lines, log, ahead_s, gone_wrong=now > dying_until)
            if verdict.kind == ALIVE and now > deadline:
                verdict = _late(verdict, timeout_s, seen["probe"])
            self._board.post(verdict)
            if self._rank == 0:
                watch_s = WATCH_S
            elif verdict.kind == ALIVE:
                _until_news(self._board, self._rank, max(LOOK_EVERY_S, self._ranks / LOOKS_A_SECOND))
            others = {rank: kind for rank, kind in self._board.kinds().items() if rank != self._rank}
            if verdict.kind == ALIVE and others.get(0) == READY and not dying:
                verdict = replace(verdict, kind=READY, doing="ready", symptoms=[])
                self._board.post(verdict)
            if verdict.doing != told:
                told = verdict.doing
                report(self._host, "engine", note=told)
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

    def _seen(self, watch_s: int) -> dict[str, Any]:
        host = self._host
        try:
            return self._look(watch_s)
        except AnsibleConnectionFailure as error:
            hint = f"Check the node and its SSH, then run the same command again: ssh {host}"
            reason = f"the connection to the node was lost ({error})"
            self._board.post(_failed(host, self._rank, UNREACHABLE, reason, hint))
            raise
        except AnsibleActionFail as error:
            hint = f"Check Docker on {host}: systemctl status docker"
            what = f"it cannot be watched: {error.message}"
            self._board.post(_failed(host, self._rank, DIED, what, hint))
            raise AnsibleActionFail(what) from None


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


def not_started(host: str, rank: int, error: str, log: Profile) -> RankVerdict:
    """Return the verdict on a rank whose container did not start."""
    rule = log.match(error)
    means, fix = (
        rule.words(error, log.facts) if rule else ("", "Correct that, then run the same command again.")
    )
    what = f"its container did not start: {error.rstrip('.')}" + (f" ({means})" if means else "")
    return _failed(host, rank, DIED, what, fix)


def _failed(host: str, rank: int, kind: int, reason: str, hint: str) -> RankVerdict:
    """Return the verdict on a rank whose state alone is the reason."""
    return RankVerdict(host, rank, kind, reason, [_symptom("cause", reason, hint)])


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
) -> RankVerdict:
    """Return what one reading of a rank means; `lines` are of its log.

    `ahead_s` is how far the node's clock is ahead. `gone_wrong`: the rank logged its end a while ago.
    """
    doing = log.doing([line.text for line in lines]) or "starting"
    if seen["ready"]:
        return RankVerdict(host, rank, READY, seen["probe"], doing="ready")
    if not seen["exists"]:
        hint = "Run the same command again: it recreates the container."
        return _failed(host, rank, DIED, "there is no container", hint)
    symptoms = [symptom for symptom in causes.in_log(log, lines) if symptom.weight != "note"]
    if seen["running"] and not gone_wrong:
        # A rank that runs may have survived what a general rule matches.
        symptoms_shown = [symptom for symptom in symptoms if symptom.weight != "general"]
        return RankVerdict(host, rank, ALIVE, "running", symptoms_shown, doing=doing)
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
    return RankVerdict(host, rank, kind, how, symptoms, errors[:MAX_ERRORS], doing)


def _late(verdict: RankVerdict, timeout_s: int, probe: str) -> RankVerdict:
    reason = f"not ready after {timeout_s} s" + (f", last answer: {probe}" if probe else "")
    hint = (
        "Raise ready_timeout if a rank was still busy; a rank that waits shows that another one is missing."
    )
    symptoms = [*verdict.symptoms, _symptom("hang", reason, hint)]
    return replace(verdict, kind=LATE, state=reason, symptoms=symptoms)
