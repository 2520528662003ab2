"""Action: apt after what an interrupted dpkg has left was finished. Roles use apt through it."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.headfirst.serving.plugins.plugin_utils.gated_action import GatedAction

DEFAULTS = {"lock_timeout": 300, "install_recommends": False}
REPAIR, APT = "headfirst.serving.dpkg_repair", "ansible.builtin.apt"
_TEXTS = ("msg", "stdout", "stderr")


class ActionModule(GatedAction):
    """Runs both modules on the host; a failed repair ends the task."""

    ANSWERS: ClassVar[dict[str, Any]] = {
        REPAIR: {"changed": "bool", "found": "str"},
        APT: {
            "changed": "bool",
            "cache_updated": {"type": "bool", "required": False},
            "cache_update_time": {"type": "int", "required": False},
            **{name: {"type": "str", "required": False} for name in _TEXTS},
        },
    }
    RETURNS = ("cache_updated", "cache_update_time", *_TEXTS, "repaired")

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return what module apt does, and what was repaired."""
        options = DEFAULTS | arguments
        repair = self.ask_module(REPAIR, {"seconds": options["lock_timeout"]})
        if repair.get("failed"):
            return repair
        done = self.ask_module(APT, options)
        changed = bool(done.get("changed") or repair["changed"])
        return {**done, "changed": changed, "repaired": repair["found"]}
