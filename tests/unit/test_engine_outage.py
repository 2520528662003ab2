"""Role engine announces an outage, also where the node tools of an earlier release cannot be asked."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from headfirst.collection import collection_root
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.control.run.runner import run_playbook

RUN = collection_root() / "roles" / "engine" / "tasks" / "run.yml"
UNKNOWN = 2  # argparse: the command is not known


@pytest.mark.parametrize(
    ("exit_code", "replicas", "is_outage"),
    [(0, 2, False), (3, 2, True), (UNKNOWN, 1, True), (UNKNOWN, 2, False)],
)
def test_an_outage_is_announced(tmp_path: Path, exit_code: int, replicas: int, is_outage: bool) -> None:
    supervisor = tmp_path / "headfirst-supervisor"
    supervisor.write_text(f"#!/bin/sh\nexit {exit_code}\n")
    supervisor.chmod(0o755)
    ask, announce = next(task["block"] for task in yaml.safe_load(RUN.read_text()) if "block" in task)[:2]
    told = {"ansible.builtin.set_stats": {"data": {"is_outage": "{{ announced is not skipped }}"}}}
    variables = {
        "engine_supervisor": str(supervisor),
        "engine_name": "headfirst-engine",
        "engine_rank": 0,
        "engine_replicas": replicas,
        "engine_changed": [],
        "__engine_change": {"restart": True},
        "__engine_states": [{"seen": {"current": {"running": True}}}],
        "__engine_outage": "The replica does not answer.",
    }
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": variables,
        "tasks": [ask, {**announce, "register": "announced"}, told],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play], sort_keys=False))
    (tmp_path / "hosts.ini").write_text(
        "localhost ansible_connection=local ansible_python_interpreter=/usr/bin/python3\n"
    )
    run = (tmp_path / "play.yml", [tmp_path / "hosts.ini"])
    done = run_playbook(*run, reporter=QuietReporter(), log_file=tmp_path / "log", hosts=1)
    assert done.stats == {"is_outage": is_outage}, (tmp_path / "log").read_text()
