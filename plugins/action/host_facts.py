"""Action: module host_facts, with a clock that is compared whatever the way to the host takes."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from ansible_collections.headfirst.serving.plugins.plugin_utils.gated_action import GatedAction
from ansible_collections.headfirst.serving.plugins.plugin_utils.host_answer import HOST

MODULE = "headfirst.serving.host_facts"


class ActionModule(GatedAction):
    """Runs the module on the host and corrects `clock_skew_s` of its result."""

    _supports_check_mode = True
    ANSWERS: ClassVar[dict[str, Any]] = {
        MODULE: {"changed": "bool", "host": {"type": "dict", "options": HOST}}
    }
    RETURNS = ("host",)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result."""
        sent = time.time()
        result = self.ask_module(MODULE, {**arguments, "controller_time": sent})
        if "host" in result:
            host = result["host"]
            host["clock_skew_s"] = skew(host["clock_skew_s"], time.time() - sent)
        return result


def skew(ahead: float, round_trip: float) -> float:
    """Return by how much a clock differs at least, in seconds.

    `ahead` is its time less that of the controller when the task began. A host among a hundred may be asked
    half a minute later: any time within the round trip is right.
    """
    return max(0.0, ahead - round_trip) + min(0.0, ahead)
