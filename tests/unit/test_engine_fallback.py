"""Role engine returns to what served before, also where only one of its hosts failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.collection import collection_root
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.control.run.runner import run_playbook

VARIABLES = collection_root() / "roles" / "engine" / "vars" / "main.yml"
PLAY = """\
- hosts: ranks
  gather_facts: false
  any_errors_fatal: true
  vars:
    __engine_change: {{fallback: served, fallback_hosts: [a, b]}}
  vars_files: [{variables}]
  tasks:
    - block:
        - ansible.builtin.command: "{{{{ command }}}}"
          changed_when: false
      rescue:
        - ansible.builtin.set_fact:
            __engine_failure: The command failed.
        - ansible.builtin.set_stats:
            data:
              returns: "{{{{ __engine_can_fall_back }}}}"
          run_once: true
"""


@pytest.mark.parametrize(
    ("of_b", "returns"), [("command=/bin/false", True), ("ansible_connection=ssh ansible_port=1", False)]
)
def test_hosts_that_are_reached_return(tmp_path: Path, of_b: str, returns: bool) -> None:
    inventory, play = tmp_path / "hosts.ini", tmp_path / "play.yml"
    inventory.write_text(
        f"[ranks]\na command=/bin/true\nb ansible_host=127.0.0.1 command=/bin/true {of_b}\n"
        "[all:vars]\nansible_connection=local\nansible_python_interpreter=/usr/bin/python3\n"
    )
    play.write_text(PLAY.format(variables=VARIABLES))
    done = run_playbook(play, [inventory], reporter=QuietReporter(), log_file=tmp_path / "log", hosts=2)
    assert done.stats == {"returns": returns}, (tmp_path / "log").read_text()
