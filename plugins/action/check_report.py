"""Action: judge what module host_facts gathered on all hosts, and report every finding at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.headfirst.serving.plugins.modules import check_report as documented
from ansible_collections.headfirst.serving.plugins.plugin_utils import check_findings
from ansible_collections.headfirst.serving.plugins.plugin_utils.gated_action import (
    GatedAction,
    argument_spec,
    spec_of,
)

_ROLE = Path(__file__).parents[2] / "roles" / "check" / "meta" / "argument_specs.yml"


class ActionModule(GatedAction):
    """Runs on the controller; fails when a finding is an error. Result: `headfirst_findings`."""

    _requires_connection = False
    _supports_check_mode = True
    ARGUMENTS = argument_spec(documented.DOCUMENTATION)
    RETURNS = ("headfirst_findings",)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return {failed, msg, headfirst_findings: [{id, severity, host, what, why, fix}]}."""
        results, variables = arguments["results"], arguments["variables"]
        spec = spec_of(yaml_load(_ROLE.read_text())["argument_specs"]["main"]["options"])
        limits = {host: check_findings.limits(values, spec) for host, values in variables.items()}
        findings = check_findings.findings(results, limits)
        failed = any(finding["severity"] == "error" for finding in findings)
        return {
            "changed": False,
            "failed": failed,
            "msg": _text(findings) or f"All {len(results)} hosts are ready.",
            "headfirst_findings": findings,
        }


def _text(findings: list[dict[str, str]]) -> str:
    return "\n".join(f"{f['host']}: {f['severity']}: {f['what']}. {f['why']} {f['fix']}" for f in findings)
