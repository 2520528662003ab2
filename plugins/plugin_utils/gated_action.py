"""The base of every action of this collection: what comes from a node passes through node_answer.py."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleAction, AnsibleActionFail
from ansible.module_utils.common.yaml import yaml_load
from ansible.plugins.action import ActionBase
from ansible_collections.headfirst.serving.plugins.plugin_utils import node_answer
from ansible_collections.headfirst.serving.plugins.plugin_utils.node_answer import FAILURE, Spec

_SHELL: Spec = {"rc": "int", "stdout": {"type": "str", "max": 64 << 20}, "stderr": {"type": "str"}}
_CHECKED = ("type", "elements", "required", "default", "choices")


def argument_spec(documentation: str, *secret: str) -> dict[str, Any]:
    """The argument_spec of a module's documentation; options that are `secret` are in no log."""
    spec = spec_of(yaml_load(documentation)["options"])
    for name in secret:
        spec[name]["no_log"] = True
    return spec


def spec_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The argument_spec of documented options, of a module or of a role."""
    return {
        name: {key: option[key] for key in _CHECKED if key in option}
        | ({"options": spec_of(option["suboptions"])} if "suboptions" in option else {})
        for name, option in options.items()
    }


class GatedAction(ActionBase):  # type: ignore[misc]
    """Declares what it takes, reads and returns; ansible-core gets a result with these names alone.

    ARGUMENTS is the argument_spec, made of the documentation (None: the module checks them), REQUIRED_IF
    belongs to it, ANSWERS has the specification of each module's result, and RETURNS the names of the result
    beside those of every action.
    """

    ARGUMENTS: ClassVar[dict[str, Any] | None] = None
    REQUIRED_IF: ClassVar[list[Any]] = []
    ANSWERS: ClassVar[dict[str, Any]] = {}
    RETURNS: ClassVar[Iterable[str]] = ()

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Check the arguments, act, and return what is declared."""
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        if self.ARGUMENTS is not None:
            _result, arguments = self.validate_argument_spec(
                argument_spec=dict(self.ARGUMENTS), required_if=self.REQUIRED_IF
            )
        self._variables = task_vars or {}
        self._host = str(self._variables["inventory_hostname"])
        try:
            result = self.act(arguments)
        except AnsibleAction as error:
            self._require_declared(error.result, arguments)
            raise
        self._require_declared(result, arguments)
        return result

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Do the work and return the result."""
        raise NotImplementedError

    def declared(self, arguments: Mapping[str, Any]) -> Iterable[str]:
        """Names of the result that the task's arguments declare."""
        return ()

    def _require_declared(self, result: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        declared = {"changed", "skipped", *FAILURE, *self.RETURNS, *self.declared(arguments)}
        if undeclared := [name for name in result if name not in declared]:
            raise AnsibleActionFail(f"The action returns {undeclared[0]}, which it does not declare.")

    def ask_module(self, name: str, arguments: Mapping[str, Any], *, secret: bool = False) -> dict[str, Any]:
        """Run a module on the host; its result by ANSWERS, or its failure.

        `secret`: the arguments hold a key, which the host's syslog must not have.
        """
        variables = self._variables | ({"ansible_no_target_syslog": True} if secret else {})
        result = self._execute_module(name, module_args=dict(arguments), task_vars=variables)
        return node_answer.of_module(result, self.ANSWERS[name], host=self._host, what=name)

    def ask_shell(self, command: str, data: bytes | None = None) -> dict[str, Any]:
        """Run a command on the host: {rc, stdout, stderr}."""
        answer = self._low_level_execute_command(command, in_data=data)
        # A command that reads no data has a terminal, whose lines end with CR LF.
        texts = {name: answer[name].replace("\r\n", "\n") for name in ("stdout", "stderr")}
        answer = {"rc": answer["rc"], **texts}
        return node_answer.checked(answer, _SHELL, host=self._host, what=command.split(" ")[0])


def report(host: str, what: str, *, done: int = 0, total: int = 0, unit: str = "", note: str = "") -> None:
    """Append one JSON line to the file named by HEADFIRST_PROGRESS; without that variable nobody listens.

    `total` 0 means that the amount is not known. All hosts append to one file: a line is one write.
    """
    path = os.environ.get("HEADFIRST_PROGRESS")
    if not path:
        return
    record = {"host": host, "what": what, "done": done, "total": total, "unit": unit, "note": note}
    with Path(path).open("ab", buffering=0) as file:
        file.write(json.dumps(record).encode() + b"\n")
