"""Run a program on the node as a unit that survives a lost connection, and follow it to its end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible_collections.headfirst.serving.plugins.modules import job as documented
from ansible_collections.headfirst.serving.plugins.plugin_utils import job_script, node_answer
from ansible_collections.headfirst.serving.plugins.plugin_utils.gated_action import (
    GatedAction,
    argument_spec,
    report,
)
from ansible_collections.headfirst.serving.plugins.plugin_utils.job_script import Job, JobReport

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 2.0
RECONNECT_PAUSE_S = 3.0
SIGN_OF_LIFE = "alive"
"""Of a progress: any value that changes while the work moves on, and is not shown."""
_CHANGED = {"changed": {"type": "bool", "required": False}}


class ActionModule(GatedAction):
    """`job`: the unit is on the node, this plugin only starts or joins it, and watches."""

    _supports_check_mode = True
    _requires_connection = True

    ARGUMENTS = argument_spec(documented.DOCUMENTATION, "environment_secret")
    REQUIRED_IF: ClassVar[list[Any]] = [("state", "finished", ["argv"]), ("state", "started", ["argv"])]
    RETURNS = ("exit",)

    def declared(self, arguments: Mapping[str, Any]) -> Iterable[str]:
        """What the task lists of the program's result."""
        return tuple(arguments["returns"])

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return what `returns` names of the program's result, or a failure with its message or log."""
        self._what = arguments["what"] or arguments["name"]
        self._patience_s: int = arguments["reconnect_timeout"]
        self._silence_s: int = arguments["silence_timeout"]
        self._returns: dict[str, Any] = arguments["returns"]
        self._connected = False
        if self._task.check_mode:
            return {"changed": False, "skipped": True, "msg": f"Check mode: would run {self._what}."}
        job = Job(
            arguments["name"],
            arguments["argv"],
            {name: str(value) for name, value in arguments["environment"].items()},
            {name: str(value) for name, value in arguments["environment_secret"].items()},
            arguments["timeout"],
        )
        if arguments["state"] == "stopped":
            return {"changed": self._ask(job_script.stop(job)).stopped}
        return self._follow(job, arguments["state"])

    def _follow(self, job: Job, state: str) -> dict[str, Any]:
        wait = FIRST_WAIT_S
        # What is awaited may have ended: started again, it would look for others that have ended too.
        begin = job_script.poll if state == "awaited" else job_script.start
        seen = self._ask(begin(job, wait))
        joined, told = seen.attached, {}
        last, moved_at = seen, time.monotonic()
        while True:
            if (shown := _shown(seen)) != told:
                told = shown
                report(self._host, self._what, **told)
            if seen.state != "running":
                break
            if state == "started" and seen.progress:
                return {"changed": not joined}
            if (seen.progress, seen.log) != (last.progress, last.log):
                last, moved_at = seen, time.monotonic()
            elif self._silence_s and time.monotonic() - moved_at > self._silence_s:
                self._ask(job_script.stop(job))
                return {"failed": True, "exit": "", "msg": self._why_stopped(seen)}
            wait = min(1.25 * wait, LONGEST_WAIT_S)
            seen = self._ask(job_script.poll(job, wait))
        if seen.succeeded:
            return {"changed": True, **self._checked(seen.result, {**self._returns, **_CHANGED})}
        return {"failed": True, "exit": seen.exit, "msg": self._why(seen, job)}

    def _why_stopped(self, seen: JobReport) -> str:
        log = "\n".join(seen.log)
        return (
            f"{self._what} was stopped on {self._host}: it made no progress for {self._silence_s} s "
            f"(silence_timeout). Check what it waits for, then run again.\n{log}"
        )

    def _why(self, seen: JobReport, job: Job) -> str:
        if seen.timed_out:
            return (
                f"{self._what} was stopped on {self._host}: it took longer than {job.time_limit_s} s "
                "(timeout). Run again, with a higher limit where the work needs it."
            )
        if "msg" in seen.result:
            return str(self._checked({"msg": seen.result["msg"]}, {"msg": "str"})["msg"])
        log = "\n".join(seen.log)
        if seen.state == "vanished":
            return (
                f"{self._what} ended without a result. "
                f"Check whether {self._host} was restarted, then run again.\n{log}"
            )
        return f"{self._what} ended with {seen.exit or 'no exit status'}. Its last lines:\n{log}"

    def _checked(self, result: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
        return node_answer.checked(result, spec, host=self._host, what=self._what)

    def _ask(self, script: str) -> JobReport:
        """Run a script of job_script; a lost connection is made again; once it answered, patiently."""
        lost_at = None
        while True:
            try:
                answer = self.ask_shell("sh", script.encode())
                break
            except AnsibleConnectionFailure:
                # Never answered: the master connection of an earlier task may be dead, one new one is due.
                patience = self._patience_s if self._connected else 0
                if lost_at and time.monotonic() - lost_at > patience:
                    raise
                lost_at = lost_at or time.monotonic()
                report(self._host, self._what, note="connection lost; the job continues; connecting again")
                self._connection.reset()
                time.sleep(RECONNECT_PAUSE_S)
        self._connected = True
        if answer["rc"] != 0:
            raise AnsibleActionFail(f"{self._what} could not be started: {answer['stderr'].strip()}")
        try:
            return job_script.parse(answer["stdout"])
        except ValueError as error:
            raise AnsibleActionFail(f"{self._what}: {self._host} reports {error}") from error


def _shown(seen: JobReport) -> dict[str, Any]:
    """The progress as it is reported to people."""
    return {name: value for name, value in seen.progress.items() if name != SIGN_OF_LIFE}
