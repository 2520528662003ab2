"""What one host does in each step of a rollout (module_utils/rollout.py), with modules and its supervisor."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.headfirst.serving.plugins.module_utils.rollout import Change, Step
from ansible_collections.headfirst.serving.plugins.plugin_utils import rank_watch, rollout_report
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import profile
from ansible_collections.headfirst.serving.plugins.plugin_utils.gated_action import report
from ansible_collections.headfirst.serving.plugins.plugin_utils.rank_board import RankBoard, explain

CONTAINER = "headfirst.serving.container"
GENERATIONS = "headfirst.serving.container_generations"
WATCH = "headfirst.serving.container_watch"
BACKUP = "headfirst.serving.webui_backup"
# Seconds that the requests of a replica that does not serve get.
_LAST_REQUESTS_S = 10
# Seconds of one look at a container that is started again.
_WATCH_S = 60
# Exit codes of headfirst-supervisor: a person holds the replica; without it no request is answered.
_HELD = _NEEDED = 3
# Its exit code for a command that node tools of an earlier release do not have.
_UNKNOWN = 2
Answer = dict[str, Any]


class HostSteps:
    """What one host does; `args` are the options of the module `rollout`."""

    def __init__(
        self,
        args: Mapping[str, Any],
        host: str,
        ask: Callable[[str, Mapping[str, Any]], Answer],
        ask_shell: Callable[[str, bytes], Answer],
        board: Path,
        *,
        check: bool,
    ) -> None:
        """`ask` runs a module on the host, `ask_shell` a command; `board` is a folder on the controller."""
        self._args, self._host, self._check = args, host, check
        self._name, self._rank = str(args["name"]), int(args["rank"])
        self._ask, self._ask_shell, self._board = ask, ask_shell, board
        self.findings: list[dict[str, str]] = []
        self._change: Change = {}
        self._names: list[str] = []
        self._beside: list[str] = []
        self._starts: list[float] = []
        self._backup, self._began = "", 0.0

    @property
    def parts(self) -> set[str]:
        """Of what rollout.py knows as parts, those that the service has."""
        parts = {name for name in ("supervisor", "proofs", "backup") if self._args[name]}
        return parts - ({"backup", "proofs"} if self._check else set())

    def read(self) -> Answer:
        """The state of this host's rank."""
        seen = self._do(GENERATIONS)
        self._names = seen["names"]
        self._starts = [entry.get("start_seconds", 0.0) for entry in seen["generations"].values()]
        state = {"current": seen["current"], "generations": seen["generations"]}
        return {"rank": self._rank, "fingerprint": self._args["fingerprint"], "seen": state}

    def do(self, step: Step, change: Change) -> Any:
        """Do this host's part of a step."""
        self._change = change
        if step.do in rollout_report.DOING:
            report(self._host, self._args["title"] or "engine", note=rollout_report.DOING[step.do])
        return getattr(self, f"_{step.do}_step")(step)

    def release(self) -> None:
        """Resume the supervisor; of a person's hold nothing changes."""
        self._supervisor("release", self._name, by_run=True)

    def retire(self) -> None:
        """Adopt what served under another name, and remove the ranks that are not planned."""
        planned = self._args["planned"]
        for name in self._names if planned else ():
            if name in planned or not self._is_family(name):
                continue
            adopted = self._do(GENERATIONS, state="adopted", former=name, url=self._args["record"]["url"])
            if self._args["is_last"] or adopted["changed"]:
                self._stop_other(name)
                self._do(GENERATIONS, name=name, state="absent", stop_timeout=self._args["stop_timeout"])
                self._supervisor("release", name, by_run=True)

    # -- before anything stops ---------------------------------------------------------------------

    def _record_step(self, step: Step) -> None:
        args = {"generation": step.generation, "version": self._version(step.generation)}
        if not self._args["rollback"]:
            self._do(GENERATIONS, state="recorded", record=self._args["record"], **args)
        elif self._change["restart"]:  # a rollback that is interrupted goes on, and does not turn round
            self._do(GENERATIONS, state="planned", **args)

    def _create_step(self, step: Step) -> None:
        labels = {
            "headfirst.generation": step.generation,
            "headfirst.rank": str(self._rank),
            "headfirst.ranks": str(self._args["ranks"] or 1),
        }
        container = {"name": f"{self._name}.{step.generation}", "spec": self._args["spec"], "labels": labels}
        if self._args["compile_cache"]:
            container["compile_cache"] = self._args["compile_cache"]
        try:
            self._do(CONTAINER, state="created", **container)
        except AnsibleActionFail as error:
            where = f"Rank {self._rank} on {self._host}: " if self._args["ranks"] else ""
            raise AnsibleActionFail(f"{where}{error.message}") from None

    def _pause_step(self, step: Step) -> None:
        self._hold(self._name)

    def _announce_step(self, step: Step) -> list[str]:
        beside = self._do(GENERATIONS, generation=step.generation)["beside"]
        self._beside = [name for name in beside if self._is_family(name)]
        if self._args["state"] == "prepared" and self._beside:
            self.findings.append(rollout_report.displacement(self._name, self._beside))
        if self._args["state"] == "prepared" and self._rank == 0 and self._is_outage():
            self.findings.append(rollout_report.outage(next((start for start in self._starts if start), 0.0)))
        return self._beside

    # -- the change --------------------------------------------------------------------------------

    def _drain_step(self, step: Step) -> None:
        self._drain(self._name, _LAST_REQUESTS_S if step.back else self._args["drain_timeout"])

    def _displace_step(self, step: Step) -> None:
        for name in self._beside:
            self._stop_other(name)

    def _stop_step(self, step: Step) -> None:
        self._do(CONTAINER, state="stopped", stop_timeout=self._args["stop_timeout"])

    def _back_up_step(self, step: Step) -> None:
        self._backup = str(self._do(BACKUP, **{**self._args["backup"], "state": "taken"})["backup"])

    def _restore_step(self, step: Step) -> None:
        if self._backup:
            restored = {"state": "restored", "backup": self._backup, "present": False}
            self._do(BACKUP, **{**self._args["backup"], **restored})

    def _name_step(self, step: Step) -> None:
        self._do(GENERATIONS, state="current", generation=step.generation)
        self._began = time.monotonic()

    def _start_step(self, step: Step) -> None:
        try:
            self._do(CONTAINER, state="started")
        except AnsibleActionFail as error:
            if self._args["engine_log"] is None:
                raise
            log = profile(self._args["engine_log"])
            verdict = rank_watch.not_started(self._host, self._rank, error.message, log)
            raise AnsibleActionFail(explain([verdict])[2]) from None

    def _wait_step(self, step: Step) -> None:
        if self._check:
            return
        if self._args["engine_log"] is None:
            self._wait_alone()
            return
        board = RankBoard(self._board.with_name(f"{self._board.name}-{step.generation}"))
        log = profile(self._args["engine_log"])
        watch = rank_watch.RankWatch(self._look, board, self._host, self._rank, len(step.hosts), log)
        watch.wait(self._args["ready_timeout"])

    def _look(self, seconds: int) -> Answer:
        return self._do(WATCH, recorded=True, seconds=seconds, timestamps=True)

    def _wait_alone(self) -> None:
        title, path, seconds = (self._args[name] for name in ("title", "path", "ready_timeout"))
        seen = self._do(WATCH, recorded=True, path=path, seconds=seconds)
        if seen["ready"]:
            return
        state = f"no answer after {seconds} s, {seen['probe']}" if seen["running"] else "it ended"
        log = [f"  | {line[:300]}" for line in seen["log"][-5:]]
        port = f"Is the port of {self._args['record']['url']} free?"
        raise AnsibleActionFail("\n".join([f"{title} is not ready: {state}.", *log, port]))

    def _prove_step(self, step: Step) -> None:
        for proof in self._args["proofs"]:
            self._do_with(proof["module"], proof["args"])

    def _route_step(self, step: Step) -> None:
        # Of a rollback no routers are known here; the generation's record has them.
        supervision = (self._args["record"] or {}).get("supervision") or {}
        if supervision.get("routers", True) and not self._check:
            self._supervisor("wait", self._name)

    def _keep_step(self, step: Step) -> None:
        version = "" if step.back else self._version(step.generation)
        took = {"start_seconds": time.monotonic() - self._began} if version and self._began else {}
        restarted = step.back or self._change["restart"]
        arguments = {"generation": step.generation, "version": version, "keep": self._change["keep"], **took}
        self._do(GENERATIONS, state="kept", restarted=restarted, **arguments)

    # -- what ran before, and what goes ------------------------------------------------------------

    def _revive_step(self, step: Step) -> dict[str, bool]:
        return self._revive(self._name)

    def _revive_displaced_step(self, step: Step) -> dict[str, bool]:
        answers: dict[str, bool] = {}
        for name in self._beside:
            answers |= self._revive(name)
        return answers

    def _revive(self, name: str) -> dict[str, bool]:
        """Start what was stopped again; whether it serves, where its head is here."""
        seen = self._do(GENERATIONS, name=name)
        is_head = seen["current"].get("rank", 0) == 0
        # The supervisor of a replica's head starts the ranks on other hosts with it.
        if is_head or not self._args["supervisor"]:
            self._do(CONTAINER, name=name, state="started")
        self._do(CONTAINER, name=name, state="kept")
        self._supervisor("release", name, by_run=True)
        url = seen["generations"].get(seen["current"]["generation"], {}).get("url")
        end = time.monotonic() + self._args["ready_timeout"]
        while is_head and url and not self._check:
            watched = self._do(WATCH, name=name, recorded=True, path=self._args["path"], seconds=_WATCH_S)
            if watched["ready"] or time.monotonic() > end:
                return {name: watched["ready"]}
        return {}

    def _remove_step(self, step: Step) -> None:
        self._do(GENERATIONS, state="absent", stop_timeout=self._args["stop_timeout"])

    def _stop_other(self, name: str) -> None:
        """Stop a rank of another name when its requests have ended. A person who holds it has paused it."""
        self._hold(name, even_held=True)
        self._drain(name, self._args["drain_timeout"])
        self._do(CONTAINER, name=name, state="stopped", stop_timeout=self._args["stop_timeout"])

    # -- the supervisor ----------------------------------------------------------------------------

    def _hold(self, name: str, *, even_held: bool = False) -> None:
        """Pause the supervisor, which would start again what is stopped on purpose."""
        by_run = self._args["state"] != "absent"  # a person's hold stays, unless the replica is removed
        seconds = str(self._args["ready_timeout"] * 2 + 600)
        answer = self._supervisor("hold", name, "--seconds", seconds, by_run=by_run, fine=(0, _HELD))
        if answer["rc"] == _HELD and not even_held:
            raise AnsibleActionFail(f"On {self._host}: {answer['stderr'].strip()}")

    def _drain(self, name: str, seconds: int) -> None:
        """Wait for the requests that run; routers send no new ones meanwhile."""
        words = self._supervisor("drain", name, "--seconds", str(seconds))["stderr"].strip()
        if words:
            self.findings.append(rollout_report.finding("drain", words))

    def _is_outage(self) -> bool:
        """Whether no other replica can answer while this one, which runs, does not."""
        if not self._change["running"]:
            return False
        alone = bool(self._args["replicas"] == 1)
        if not self._args["supervisor"]:
            return alone
        changed = [word for replica in self._args["changed"] for word in ("--changed", *replica)]
        fine = (0, _UNKNOWN, _NEEDED)
        code = self._supervisor("needed", self._name, *changed, fine=fine, even_in_check_mode=True)["rc"]
        return alone if code == _UNKNOWN else bool(code == _NEEDED)

    def _supervisor(
        self,
        command: str,
        *words: str,
        by_run: bool = False,
        fine: Collection[int] = (0,),
        even_in_check_mode: bool = False,
    ) -> Answer:
        """{rc, stderr} of a command of headfirst-supervisor; rc 2 where the node tools are not installed."""
        program = self._args["supervisor"]
        if not program or (self._check and not even_in_check_mode):
            return {"rc": 0, "stderr": ""}
        line = shlex.join([*(["env", "HEADFIRST_RUN=1"] if by_run else []), program, command, *words])
        missing = _UNKNOWN if command == "needed" else 0
        # With data on standard input the command has no terminal, which would mix its two outputs.
        answer = self._ask_shell(f"test -x {shlex.quote(program)} || exit {missing}; {line}", b"\n")
        if answer["rc"] not in fine:
            raise AnsibleActionFail(answer["stderr"].strip() or f"{line} ended with {answer['rc']}.")
        return answer

    # -- modules -----------------------------------------------------------------------------------

    def _version(self, generation: str) -> str:
        version = self._args["version"]
        return "" if version is None else version or generation

    def _is_family(self, name: str) -> bool:
        family = self._args["family"]
        return not family or re.match(f"{re.escape(family)}(-|$)", name) is not None

    def _do(self, module: str, **arguments: Any) -> Answer:
        return self._do_with(module, {"name": self._name, **arguments})

    def _do_with(self, module: str, arguments: Mapping[str, Any]) -> Answer:
        answer = self._ask(module, arguments)
        if answer.get("failed"):
            raise AnsibleActionFail(answer.get("msg") or f"{module} failed.")
        return answer
