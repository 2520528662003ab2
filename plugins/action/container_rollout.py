"""Replace a container by one that is created beside it, and return to it where the new one fails."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from ansible.errors import AnsibleActionFail
from ansible_collections.headfirst.serving.plugins.modules import container_rollout as documented
from ansible_collections.headfirst.serving.plugins.plugin_utils import service_change
from ansible_collections.headfirst.serving.plugins.plugin_utils.gated_action import (
    GatedAction,
    argument_spec,
    report,
)

CONTAINER = "headfirst.serving.container"
GENERATIONS = "headfirst.serving.container_generations"
WATCH = "headfirst.serving.container_watch"
BACKUP = "headfirst.serving.webui_backup"
PROOFS = ("ansible.builtin.uri", "headfirst.serving.webui_check")
_CHANGED = {"changed": {"type": "bool", "required": False}}


class ActionModule(GatedAction):
    """`container_rollout`: each step is a module on the host, so that no step follows a lost controller."""

    _supports_check_mode = True
    _requires_connection = True

    ARGUMENTS = argument_spec(documented.DOCUMENTATION)
    ANSWERS: ClassVar[dict[str, Any]] = {
        CONTAINER: _CHANGED,
        GENERATIONS: {
            **_CHANGED,
            **{name: {**rule, "required": False} for name, rule in service_change.SEEN.items()},
            "beside": {"type": "list", "elements": "str", "required": False},
        },
        WATCH: {
            **dict.fromkeys(("running", "ready"), "bool"),
            "probe": "str",
            "log": {"type": "list", "elements": "str"},
        },
        BACKUP: {**_CHANGED, "backup": "str"},
        **dict.fromkeys(PROOFS, _CHANGED),
    }
    RETURNS = ("generation",)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return {"changed", "generation"}, or the failure that names what serves now."""
        self._args, self._name, self._changed = arguments, arguments["name"], False
        self._displaced: list[str] = []
        seen = self._do(GENERATIONS)
        change = self._change(seen)
        planned = change["generation"]
        self._do(GENERATIONS, state="recorded", generation=planned, record={"url": arguments["url"]})
        if planned not in seen["generations"]:
            self._create(planned)
        backup = ""
        try:
            if change["restart"]:
                backup = self._back_up()
                self._switch(planned)
            self._wait(arguments["url"])
            self._prove()
            self._keep(planned, change["keep"], restarted=change["restart"])
        except AnsibleActionFail as error:
            self._fall_back(error.message, change, seen["generations"], backup)
        return {"changed": self._changed, "generation": planned}

    def _change(self, seen: dict[str, Any]) -> dict[str, Any]:
        rank = {"host": self._host, "rank": 0, "fingerprint": self._args["fingerprint"], "seen": seen}
        return service_change.change([rank])

    def _create(self, generation: str) -> None:
        """A refusal here leaves the container that runs as it is."""
        labels = {"headfirst.generation": generation, "headfirst.rank": "0", "headfirst.ranks": "1"}
        name = f"{self._name}.{generation}"
        self._do(CONTAINER, name=name, state="created", spec=self._args["spec"], labels=labels)

    def _back_up(self) -> str:
        """Back up what another image may migrate; the name of the backup, "" where there is none."""
        if not self._args["backup"]:
            return ""
        self._stop()  # nothing is written after the backup
        return str(self._do(BACKUP, **{**self._args["backup"], "state": "taken"})["backup"])

    def _stop(self) -> None:
        self._do(CONTAINER, state="stopped", stop_timeout=self._args["stop_timeout"])

    def _switch(self, generation: str) -> None:
        """Every step may be the last one: the next run finds each generation by its label."""
        self._stop()
        for other in self._do(GENERATIONS, generation=generation)["beside"]:
            self._do(CONTAINER, name=other, state="stopped", stop_timeout=self._args["stop_timeout"])
            self._displaced.append(other)
        self._do(GENERATIONS, state="current", generation=generation)
        self._do(CONTAINER, state="started")

    def _wait(self, url: str) -> None:
        if self._task.check_mode:
            return
        title, path, seconds = (self._args[name] for name in ("title", "path", "ready_timeout"))
        report(self._host, self._name, note=f"waiting for an answer of {url}{path}")
        seen = self._do(WATCH, url=url, path=path, seconds=seconds)
        if seen["ready"]:
            return
        state = f"no answer after {seconds} s, {seen['probe']}" if seen["running"] else "it ended"
        log = [f"  | {line[:300]}" for line in seen["log"][-5:]]
        raise AnsibleActionFail(
            "\n".join([f"{title} is not ready: {state}.", *log, f"Is the port of {url} free?"])
        )

    def _prove(self) -> None:
        for proof in self._args["proofs"] if not self._task.check_mode else ():
            self._ask(proof["module"], proof["args"])

    def _keep(self, generation: str, keep: list[str], *, restarted: bool) -> None:
        self._do(GENERATIONS, state="kept", generation=generation, keep=keep, restarted=restarted)

    def _fall_back(
        self, why: str, change: dict[str, Any], generations: dict[str, Any], backup: str
    ) -> NoReturn:
        """Start the generation that served before, with the data it had, and fail."""
        self._stop()  # so that the next run starts it again
        fallback = change["fallback"]
        for other in self._displaced:
            self._do(CONTAINER, name=other, state="started")
            self._do(CONTAINER, name=other, state="kept")
            why = f"{why}\n{other}, which had its address, was started again."
        if not fallback:
            raise AnsibleActionFail(f"{why}\nThe whole log, on this host: docker logs {self._name}")
        try:
            if backup:
                restored = {"state": "restored", "backup": backup, "present": False}
                self._do(BACKUP, **{**self._args["backup"], **restored})
            self._switch(fallback)
            self._wait(generations[fallback]["url"])
            self._keep(fallback, change["keep"], restarted=True)
        except AnsibleActionFail:
            raise AnsibleActionFail(
                f"{why}\nThe version that served before was started again and does not answer either.\n"
                f"Its log, on this host: docker logs {self._name}"
            ) from None
        raise AnsibleActionFail(
            f"{why}\nThe version that served before serves again. "
            "The log of the failed start, on this host:\n"
            f"docker logs {self._name}.{change['generation']}"
        )

    def _do(self, module: str, **arguments: Any) -> dict[str, Any]:
        return self._ask(module, {"name": self._name, **arguments})

    def _ask(self, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answer = self.ask_module(module, arguments, secret=module in PROOFS)
        if answer.get("failed"):
            raise AnsibleActionFail(answer.get("msg") or f"{module} failed.", result=answer)
        self._changed = self._changed or answer.get("changed", False)
        return answer
