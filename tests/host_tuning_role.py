"""Variables and templates of role host_tuning, as Ansible computes them on a host that is described here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import variables_of_role
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).resolve().parents[1] / "roles" / "host_tuning"
LOOK = {
    "outdated": [],
    "limits_refused": False,
    "clock": {"service": "chrony", "running": True, "refused": False},
    "acs_bridges": [],
    "translated": [],
    "dropping": [],
    "ufw": {"active": False, "missing": [], "surplus": []},
}


def templar(look: dict[str, Any], **variables: Any) -> Templar:
    state = {"tuning": {**LOOK, **look}}
    return variables_of_role.templar(ROLE, __host_tuning_state=state, **variables)


def rules(name: str, **variables: Any) -> str:
    """A template of the role, for a host that is alone in its play."""
    found = templar(
        {}, inventory_hostname="node1", ansible_play_hosts_all=["node1"], hostvars={}, **variables
    )
    return str(found.template(trust_as_template((ROLE / "templates" / name).read_text())))
