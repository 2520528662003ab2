"""The result of a job comes from a node: only the names that the task lists become Ansible's."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible_collections.headfirst.serving.plugins.action import job as job_action
from ansible_collections.headfirst.serving.plugins.plugin_utils import node_answer
from ansible_collections.headfirst.serving.plugins.plugin_utils.job_script import Job, JobReport
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.control.run.result import RunResult
from headfirst.control.run.runner import run_playbook
from headfirst.node.weights import commands
from headfirst.node.weights.cli import main
from headfirst.node.weights.proof.manifest import Manifest
from headfirst.node.weights.transfer.transport import Traffic
from together import together
from weights_role import NOTHING, variables

ROLES = Path(__file__).parents[2] / "roles"
INVENTORY = """\
node1 ansible_connection=local
node2 ansible_connection=local
[all:vars]
ansible_python_interpreter=/usr/bin/python3
"""
# Other people's ssh never runs: the command of the proxy is what the node wants to run on the controller.
PLAY = """
- name: weights | Follow the job
  hosts: node1
  gather_facts: false
  tasks:
    - name: Follow
      headfirst.serving.job:
        name: weights
        argv: ["true"]
      ignore_errors: true
- name: weights | Go on with the others
  hosts: node2
  gather_facts: false
  tasks:
    - name: Ask
      ansible.builtin.raw: "true"
      ignore_unreachable: true
"""
# Of a member that is not the head.
BRING = {
    "__weights_variables": variables(address="192.0.2.2", members=["192.0.2.1", "192.0.2.2"], command="true"),
    "__weights_decision": "{{ __weights_decided.decision }}",
    "__weights_secrets": {},
    "__weights_all_began": True,
    "weights_job_timeout": 60,
    "weights_job_silence_timeout": 0,
}
# What the steps before have registered.
READ = {
    "__weights_folders": {"folders": {"model": {}, "place": {"id": "1"}, "error": ""}},
    "__weights_status": {"state": {**NOTHING, "address": "192.0.2.2"}},
}


def run_against(
    answers: Sequence[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, play: str = PLAY
) -> RunResult:
    """A run in which `sh` on node1 answers scripts with these results of a job, in turn."""
    shell = tmp_path / "node" / "sh"
    shell.parent.mkdir()
    for number, answer in enumerate(answers):
        report = f"state ended\nexit success exited 0\nresult {json.dumps(answer)}\n"
        (shell.parent / str(number)).write_text(report)
    # The first file that is left, which is removed but for the last one.
    shell.write_text(
        f"#!/bin/sh\ncat >/dev/null\ncd {shell.parent}\nset -- [0-9]\ncat $1\n[ $# = 1 ] || rm $1\n"
    )
    shell.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shell.parent}:{os.environ['PATH']}")
    (tmp_path / "hosts.ini").write_text(INVENTORY)
    (tmp_path / "play.yml").write_text(play)
    return run_playbook(
        tmp_path / "play.yml",
        [tmp_path / "hosts.ini"],
        reporter=QuietReporter(),
        log_file=tmp_path / "run.log",
    )


def test_a_node_does_not_run_a_command_on_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "taken"
    way = {"ansible_connection": "ssh", "ansible_ssh_common_args": f"-o ProxyCommand='touch {mark}'"}
    added = {"host_name": "node2", "groups": [], "host_vars": way}
    run_against([{"changed": True, "add_host": added}], tmp_path, monkeypatch)
    log = (tmp_path / "run.log").read_text()
    assert not mark.exists()
    assert "weights: the answer of node1 is refused: it has add_host" in log
    assert "UNREACHABLE" not in log


def test_weights_that_came_while_other_hosts_began_are_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = {"digest": "a", "whole": "", "sent": 0, "received": 0}
    play = yaml.safe_dump(
        [
            {
                "name": "weights | Bring",
                "hosts": "node1",
                "gather_facts": False,
                "vars": BRING,
                "tasks": [{"ansible.builtin.set_fact": READ}]
                + [
                    {"ansible.builtin.include_tasks": str(ROLES / "weights" / "tasks" / file)}
                    for file in ("decide.yml", "bring.yml")
                ],
            }
        ]
    )
    done = run_against([{**result, "changed": True}], tmp_path, monkeypatch, play)
    assert (done.ok, done.changed_total) == (True, 1), (tmp_path / "run.log").read_text()


def follow(report: JobReport, returns: dict[str, Any]) -> dict[str, Any]:
    action = object.__new__(job_action.ActionModule)
    action._host, action._what, action._silence_s, action._returns = "node1", "weights", 0, returns
    action._ask = lambda _script: report
    return action._follow(Job("weights", ["true"]), "finished")


def ended(**result: Any) -> JobReport:
    return JobReport("ended", exit="success exited 0", result=result)


@together(
    "name",
    [
        "add_host",
        "add_group",
        "ansible_facts",
        "ansible_stats",
        "ansible_ssh_common_args",
        "ansible_host",
        "_ansible_notify",
        "_ansible_no_log",
        "_ansible_delegated_vars",
        "failed",
        "results",
        "digest2",
    ],
)
def test_a_name_that_the_task_does_not_list_is_refused_with_its_host(name: str) -> None:
    with pytest.raises(AnsibleActionFail, match=f"weights: the answer of node1 is refused: it has {name}"):
        follow(ended(changed=True, digest="a", **{name: {"host_name": "node2"}}), {"digest": "str"})


def test_what_the_task_lists_comes_back() -> None:
    listed = {"digest": "str", "sizes": {"type": "list", "elements": "int"}}
    result = follow(ended(changed=False, digest="a\x1b[2J", sizes=[1, 2]), listed)
    assert result == {"changed": False, "digest": "a?[2J", "sizes": [1, 2]}
    assert follow(ended(), {}) == {"changed": True}


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"digest": 5, "sizes": []}, "digest is not text"),
        ({"digest": "a" * 65, "sizes": []}, "digest is not text of at most 64 characters"),
        ({"digest": "a"}, "it has no sizes"),
        ({"digest": "a", "sizes": [True]}, r"sizes\[0\] is not an integer"),
        ({"digest": "a", "sizes": [[[1]]]}, r"sizes\[0\] is not an integer"),
        ({"digest": "a", "sizes": [10**400]}, "a larger number"),
        ({"digest": "a", "sizes": [1] * 4}, "a list of at most 3 items: a list of 4"),
        ({"digest": "a", "sizes": [], "changed": "yes"}, "changed is not true or false"),
    ],
)
def test_types_and_lengths_are_proven(result: dict[str, Any], words: str) -> None:
    listed = {"digest": {"type": "str", "max": 64}, "sizes": {"type": "list", "elements": "int", "max": 3}}
    with pytest.raises(AnsibleActionFail, match=words) as raised:
        follow(ended(**result), listed)
    assert len(str(raised.value)) < 400


def test_of_a_failure_its_message_alone_is_read() -> None:
    failure = JobReport("ended", exit="exit-code exited 1", result={"msg": "No \x1bspace.", "add_host": {}})
    result = follow(failure, {})
    assert result == {"failed": True, "exit": "exit-code exited 1", "msg": "No ?space."}
    with pytest.raises(AnsibleActionFail, match="msg is not text"):
        follow(JobReport("ended", exit="exit-code exited 1", result={"msg": {"a": "b"}}), {})


def returned(role: str, file: str) -> list[dict[str, Any]]:
    """`returns` of the jobs in a file of a role that wait for the end."""
    tasks = yaml.safe_load((ROLES / role / "tasks" / file).read_text())
    jobs = [task["headfirst.serving.job"] for task in tasks if "headfirst.serving.job" in task]
    return [{**job["returns"], "changed": "bool"} for job in jobs if job.get("state") != "stopped"]


def test_the_roles_list_what_the_programs_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADFIRST_RESULT_FILE", str(tmp_path / "result.json"))
    (tmp_path / "config.json").write_text("{}")
    main(["warm", str(tmp_path)])
    warmed = json.loads((tmp_path / "result.json").read_text())
    assert [node_answer.named(warmed, spec) for spec in returned("engine", "warm.yml")] == [warmed]
    result = commands._result(Manifest({}, {}), True, tmp_path)
    for file in ("in_place.yml", "verify.yml"):
        assert [node_answer.named(result, spec) for spec in returned("weights", file)] == [result]
    result |= asdict(Traffic())
    assert [node_answer.named(result, spec) for spec in returned("weights", "bring.yml")] == [result] * 2
