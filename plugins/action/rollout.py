"""Change the ranks of a service on all hosts together, and return to what served where they fail."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NoReturn, cast

from ansible import constants, context
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible_collections.headfirst.serving.plugins.module_utils import rollout
from ansible_collections.headfirst.serving.plugins.module_utils.rollout import (
    Change,
    Ranks,
    Step,
    StepOutcome,
)
from ansible_collections.headfirst.serving.plugins.modules import rollout as documented
from ansible_collections.headfirst.serving.plugins.plugin_utils import rollout_report, service_change
from ansible_collections.headfirst.serving.plugins.plugin_utils.gated_action import GatedAction, argument_spec
from ansible_collections.headfirst.serving.plugins.plugin_utils.meeting import Meeting
from ansible_collections.headfirst.serving.plugins.plugin_utils.rollout_steps import (
    BACKUP,
    CONTAINER,
    GENERATIONS,
    WATCH,
    HostSteps,
)

PROOFS = ("ansible.builtin.uri", "headfirst.serving.webui_check")
_CHANGED = {"changed": {"type": "bool", "required": False}}
_NAMES = {"type": "list", "elements": "str", "required": False}


class ActionModule(GatedAction):
    """`rollout`: each step is a module on the host, so that no step follows a lost controller."""

    _supports_check_mode = True
    _requires_connection = True

    ARGUMENTS = argument_spec(documented.DOCUMENTATION, "record")
    ANSWERS: ClassVar[dict[str, Any]] = {
        CONTAINER: _CHANGED,
        GENERATIONS: {
            **_CHANGED,
            **{name: {**rule, "required": False} for name, rule in service_change.SEEN.items()},
            "beside": _NAMES,
            "names": _NAMES,
        },
        WATCH: {
            **dict.fromkeys(("exists", "running", "ready", "oom_killed"), "bool"),
            "probe": "str",
            "exit_code": "int",
            **dict.fromkeys(("finished_at", "driver", "cuda"), "str"),
            "now": "float",
            "log": {"type": "list", "elements": "str"},
        },
        BACKUP: {**_CHANGED, "backup": "str"},
        **dict.fromkeys(PROOFS, _CHANGED),
    }
    RETURNS = ("generation", "restart", "running", "headfirst_findings")

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return {"changed", "generation", "restart", "running"}; a failure names what serves now."""
        self._args, self._changed = arguments, False
        hosts = list(self._variables["ansible_play_hosts"]) if arguments["ranks"] else [self._host]
        self._require_all(hosts)
        folder = self._new_folder(together=len(hosts) > 1)
        self._steps = HostSteps(
            arguments, self._host, self._ask, self.ask_shell, folder, check=self._task.check_mode
        )
        self._meeting = Meeting(folder, self._host, hosts)
        self._connection_error: AnsibleConnectionFailure | None = None
        self._lost: set[str] = set()
        try:
            result = self._remove() if arguments["state"] == "absent" else self._roll_out()
        finally:
            self._meeting.leave()
        return {"changed": self._changed, **result, **self._warnings()}

    def _require_all(self, hosts: list[str]) -> None:
        ranks = self._args["ranks"]
        if ranks and len(hosts) != ranks:
            raise AnsibleActionFail(
                f"The service has {ranks} ranks, which start and stop together, and this play has the hosts "
                f"{', '.join(hosts)}. Nothing was changed. Run it on all hosts, without --limit."
            )
        if len(hosts) > 1 and set(self._variables["ansible_play_batch"]) != set(hosts):
            raise AnsibleActionFail("All ranks change at the same time: remove `serial` from the play.")
        if len(hosts) > 1 and (forks := context.CLIARGS["forks"]) < len(hosts):
            raise AnsibleActionFail(
                f"{len(hosts)} ranks change at the same time, and Ansible runs {forks} hosts at a time: "
                f"set ANSIBLE_FORKS={len(hosts)}."
            )

    def _new_folder(self, *, together: bool) -> Path:
        """Of this task, whose id is the same on all hosts. Ansible removes it at the end of the run."""
        place = Path(constants.DEFAULT_LOCAL_TMP)
        if together:
            return place / f"rollout-{self._task._uuid}"
        return Path(tempfile.mkdtemp(prefix="rollout-", dir=place))

    def _remove(self) -> dict[str, Any]:
        """What fails on one host is no reason to leave another one."""
        numbers = self._together(lambda: self._args["rank"]).answers
        ranks = [{"host": host, "rank": rank} for host, rank in numbers.items()]
        for step in rollout.removal(ranks, self._steps.parts):
            outcome = self._take(step, {})
            if self._host in outcome.reasons:
                self._fail(outcome.reasons[self._host])
        return {}

    def _roll_out(self) -> dict[str, Any]:
        ranks = self._ranks()
        change = self._decide(ranks)
        result = {key: change[key] for key in ("generation", "restart", "running")}
        if not change["generation"]:
            return result
        until_stop = self._args["state"] == "prepared"
        course = rollout.carry_out(ranks, change, self._steps.parts, until_stop=until_stop)
        ended = self._follow(course, change)
        waits = until_stop and change["restart"] and not ended.failure
        if waits:
            return result
        released = self._together(self._steps.release)
        if ended.failure:
            ended = ended._replace(stuck=(*ended.stuck, *released.reasons.values()))
            together = self._args["ranks"] > 0
            self._fail(rollout_report.failure(self._args["name"], change, ended, together=together))
        self._require(released)
        self._require(self._together(self._steps.retire))
        return result

    def _follow(self, course: rollout.Course, change: Change) -> rollout.Ended:
        """Do the steps as they come."""
        try:
            step = next(course)
            while True:
                step = course.send(self._take(step, change))
        except StopIteration as ended:
            return cast("rollout.Ended", ended.value)

    def _fail(self, text: str) -> NoReturn:
        raise self._connection_error or AnsibleActionFail(text, result=self._warnings())

    def _require(self, outcome: StepOutcome) -> None:
        if outcome.reasons:
            self._fail("\n".join(dict.fromkeys(outcome.reasons.values())))

    def _warnings(self) -> dict[str, Any]:
        findings = self._steps.findings
        return {"headfirst_findings": findings} if findings else {}

    # -- what hosts report, and the decision -------------------------------------------------------

    def _ranks(self) -> list[dict[str, Any]]:
        outcome = self._together(self._steps.read)
        self._require(outcome)
        try:
            ranks = service_change.checked([{"host": host, **rank} for host, rank in outcome.answers.items()])
        except ValueError as error:
            raise AnsibleActionFail(str(error)) from None
        count, numbers = self._args["ranks"], sorted(rank["rank"] for rank in ranks)
        if count and numbers != list(range(count)):
            raise AnsibleActionFail(
                f"The ranks of the hosts must be 0 to {count - 1}, once each; they are {numbers}."
            )
        return ranks

    def _decide(self, ranks: Ranks) -> Change:
        args = self._args
        if args["rollback"]:
            change = service_change.rollback(ranks, args["generation"], args["replicas"])
        else:
            change = service_change.change(ranks, args["replicas"], args["standbys"])
        return {**change, "running": any(rank["seen"]["current"]["running"] for rank in ranks)}

    # -- steps on all hosts ------------------------------------------------------------------------

    def _take(self, step: Step, change: Change) -> StepOutcome:
        """Do a step on its hosts."""
        if self._host not in step.hosts:
            return self._together(lambda: None)
        return self._together(lambda: self._steps.do(step, change))

    def _together(self, work: Callable[[], Any]) -> StepOutcome:
        """Work on this host, and what became of it on all hosts.

        A host whose connection is lost, or that has left the task, fails once; then nothing is asked of it.
        """
        said: dict[str, Any] = {"answer": None, "error": "", "lost": False}
        try:
            if self._connection_error is None:
                said["answer"] = work()
        except AnsibleConnectionFailure as error:
            self._connection_error = error
            said |= {"error": f"The connection to {self._host} was lost: {error.message}", "lost": True}
        except AnsibleError as error:
            said["error"] = error.message
        lost = {"answer": None, "error": "Another host failed.", "lost": True}
        heard = {host: answer or lost for host, answer in self._meeting.exchange(said).items()}
        reasons = {
            host: str(answer["error"])
            for host, answer in heard.items()
            if answer["error"] and host not in self._lost
        }
        self._lost |= {host for host, answer in heard.items() if answer["lost"]}
        return StepOutcome(
            {host: answer["answer"] for host, answer in heard.items()}, reasons, set(self._lost)
        )

    def _ask(self, module: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        answer = self.ask_module(module, arguments, secret=module in PROOFS)
        self._changed = self._changed or answer.get("changed", False)
        return answer
