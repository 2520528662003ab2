"""Action: what role weights reads on a host, and what it does next."""

from __future__ import annotations

import re
import shlex
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible_collections.headfirst.serving.plugins.action.host_facts import MODEL_FOLDER
from ansible_collections.headfirst.serving.plugins.modules import weights as documented
from ansible_collections.headfirst.serving.plugins.plugin_utils.gated_action import GatedAction, argument_spec
from ansible_collections.headfirst.serving.plugins.plugin_utils.weights_decision import Role

FOLDERS = "headfirst.serving.shared_folder_facts"
_KINDS = {**MODEL_FOLDER, "id": "str"}
_OPTIONS = {name: {"type": kind, "required": False} for name, kind in _KINDS.items()}
_FOLDER = {"type": "dict", "options": _OPTIONS}


class ActionModule(GatedAction):
    """`weights`: two steps read on the host, the third one compares the hosts of the play."""

    _supports_check_mode = True
    _requires_connection = True
    ARGUMENTS = argument_spec(documented.DOCUMENTATION)
    ANSWERS: ClassVar[dict[str, Any]] = {FOLDERS: {"model": _FOLDER, "place": _FOLDER, "error": "str"}}
    RETURNS = ("folders", "state", "decision")

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return {changed, and folders, state or decision}."""
        hosts = self._variables["ansible_play_hosts"]
        role = Role(self._host, arguments["variables"], {host: self._report(host) for host in hosts})
        steps = {"folders": self._folders, "status": self._status, "decide": self._decide}
        return {"changed": False, **steps[arguments["step"]](role)}

    def _folders(self, role: Role) -> dict[str, Any]:
        asked = {"model": role.own_folder, "place": role.variables["dir"], "mark": True}
        answer = self.ask_module(FOLDERS, asked)
        return answer if answer.get("failed") else {"folders": answer}

    def _status(self, role: Role) -> dict[str, Any]:
        answer = self.ask_shell("sh", shlex.join(role.status_argv).encode())
        # In check mode on a clean host the tools are not there yet.
        if answer["rc"] != 0 and not self._task.check_mode:
            raise AnsibleActionFail(f"The weights cannot be read: {answer['stderr'].strip()}")
        try:
            return {"state": role.status(answer["stdout"])}
        except ValueError as error:
            what = f"What {self._host} reports of its weights is refused"
            raise AnsibleActionFail(f"{what}: {error}.") from None

    def _decide(self, role: Role) -> dict[str, Any]:
        keys = [self._registered(host, "__weights_key").get("stdout", "") for host in role.reports]
        readers = self._registered(self._host, "__weights_readers").get("results", [])
        decision = role.decide(
            key=next((key for key in keys if re.fullmatch("[0-9a-f]{64}", key)), ""),
            running=[reader["item"] for reader in readers if reader["current"]["running"]],
            check=self._task.check_mode,
        )
        return {"decision": decision}

    def _report(self, host: str) -> dict[str, Any]:
        """What the earlier steps of the role registered on a host of the play."""
        return {
            **self._registered(host, "__weights_folders").get("folders", {}),
            "state": self._registered(host, "__weights_status").get("state", {}),
            "failure": self._registered(host, "__weights_in_place").get("msg", ""),
        }

    def _registered(self, host: str, name: str) -> dict[str, Any]:
        return self._variables["hostvars"][host].get(name) or {}
