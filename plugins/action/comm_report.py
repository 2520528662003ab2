"""Action: evaluate the connections and the collectives of the ranks."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.headfirst.serving.plugins.plugin_utils import comm_rules


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs on the controller and fails for nothing that it finds. Result: `report`, `headfirst_findings`."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return {report, errors, headfirst_findings: [{id, severity, host, what, why, fix}]}."""
        _result, args = self.validate_argument_spec(
            argument_spec={"hosts": {"type": "dict", "required": True}}
        )
        findings = comm_rules.findings(args["hosts"])
        return {
            "changed": False,
            "report": comm_rules.report(args["hosts"]),
            "errors": [
                f"{one['host']}: {one['what']}. {one['fix']}"
                for one in findings
                if one["severity"] == "error"
            ],
            "headfirst_findings": findings,
        }
