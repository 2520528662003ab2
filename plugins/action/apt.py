"""Action: apt after what an interrupted dpkg has left was finished. Roles use apt through it."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

DEFAULTS = {"lock_timeout": 300, "install_recommends": False}


class ActionModule(ActionBase):
    """Runs both modules on the host; a failed repair ends the task."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        options = DEFAULTS | self._task.args
        repair = self._execute_module(
            "headfirst.serving.dpkg_repair",
            module_args={"seconds": options["lock_timeout"]},
            task_vars=task_vars,
        )
        if repair.get("failed"):
            return result | repair
        done = self._execute_module("ansible.builtin.apt", module_args=options, task_vars=task_vars)
        changed = bool(done.get("changed") or repair["changed"])
        return result | done | {"changed": changed, "repaired": repair["found"]}
