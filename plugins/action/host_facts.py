"""Action: module host_facts, with a clock that is compared whatever the way to the host takes."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs the module on the host and corrects `clock_skew_s` of its result."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result."""
        super().run(tmp, task_vars)
        sent = time.time()
        result: dict[str, Any] = self._execute_module(
            "headfirst.serving.host_facts",
            module_args={**self._task.args, "controller_time": sent},
            task_vars=task_vars,
        )
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
