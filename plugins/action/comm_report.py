"""Action: evaluate the connections and the collectives of the ranks."""

from __future__ import annotations

from typing import Any

from ansible_collections.headfirst.serving.plugins.modules import comm_report as documented
from ansible_collections.headfirst.serving.plugins.plugin_utils import comm_rules, node_answer
from ansible_collections.headfirst.serving.plugins.plugin_utils.gated_action import GatedAction, argument_spec


class ActionModule(GatedAction):
    """Runs on the controller and fails for nothing that it finds. Result: `report`, `headfirst_findings`."""

    _requires_connection = False
    _supports_check_mode = True
    ARGUMENTS = argument_spec(documented.DOCUMENTATION)
    RETURNS = ("report", "errors", "headfirst_findings")

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return {report, errors, headfirst_findings: [{id, severity, host, what, why, fix}]}."""
        reach = _reach([rank["address"] for rank in arguments["hosts"].values()])
        hosts = {
            host: {**values, "reach": node_answer.of_module(values["reach"], reach, host=host, what="reach")}
            for host, values in arguments["hosts"].items()
        }
        findings = comm_rules.findings(hosts)
        return {
            "changed": False,
            "report": comm_rules.report(hosts),
            "errors": [
                f"{finding['host']}: {finding['what']}. {finding['fix']}"
                for finding in findings
                if finding["severity"] == "error"
            ],
            "headfirst_findings": findings,
        }


def _reach(addresses: list[str]) -> dict[str, Any]:
    """What is read of module reach's result: no host reports of another one than these."""
    attempt = {
        "address": {"type": "str", "choices": addresses},
        "port": {"type": "int", "min": 1, "max": 65535},
        "state": {"type": "str", "choices": ["ok", *comm_rules.WORDS]},
        "words": {"type": "str", "max": 1000},
    }
    return {
        "listening": {"type": "dict", "elements": "str"},
        "reached": {"type": "list", "elements": "dict", "options": attempt},
    }
