"""Roles after a run that ended between writing a file and what reads it: a handler is lost with its run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible.template import trust_as_template
from host_tuning_role import templar

ROLES = Path(__file__).resolve().parents[2] / "roles"
# Facts of the role find the engine that is older than its files, or lacks the runtime; Podman's API ends by
# itself when nobody asks.
COMPLETED = {
    "docker_engine": {"Restart Docker for docker_engine"},
    "nvidia_container_toolkit": {"Restart Docker for nvidia_container_toolkit"},
    "podman_engine": {"Read the settings again for podman_engine"},
}


def test_no_role_needs_a_handler_that_an_interrupted_run_has_lost() -> None:
    found: dict[str, set[str]] = {}
    for path in ROLES.glob("*/tasks/*.yml"):
        for name in re.findall(r"notify:\s*(?:\n\s*- )?(.+)", path.read_text()):
            found.setdefault(path.parents[1].name, set()).add(name)
    assert found == COMPLETED


@pytest.mark.parametrize("wanted", ["server 192.0.2.1\n", ""])
def test_time_servers_that_the_service_has_not_read_are_outdated(wanted: str) -> None:
    """What the file holds before the restart is not what it is to hold in the end."""
    tasks = yaml.safe_load((ROLES / "host_tuning" / "tasks" / "time_servers.yml").read_text())
    first, last = (number for number, task in enumerate(tasks) if "ansible.builtin.copy" in task)
    (restart,) = (number for number, task in enumerate(tasks) if "ansible.builtin.systemd_service" in task)
    assert first < restart < last
    role = templar({}, __host_tuning_files={"/etc/chrony/sources.d/headfirst.sources": wanted})
    before, after = (
        role.template(trust_as_template(tasks[number]["ansible.builtin.copy"]["content"]))
        for number in (first, last)
    )
    assert before != wanted == after
