"""The generated inventory with real Ansible: text of a node is never a template, wherever it goes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from headfirst.control.deployment.running import inventory
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.cluster.types import Cluster

INVENTORY = """
[head]
node1 ansible_host=192.0.2.1
[all:vars]
model_source=demo
engine_device=cpu
"""
# Each task hands the text on by another way; all of them write what arrived to a file.
PLAYBOOK = """
- hosts: node1
  gather_facts: false
  tasks:
    - name: Value, list, key and value of a dictionary
      ansible.builtin.copy:
        content: "{{ [evil, evil_list[0], evil_map.keys() | first, evil_map.values() | first] | to_json }}"
        dest: "{{ folder }}/variables"
        mode: "0600"
    - name: Text of a module result
      ansible.builtin.command:
        argv: [printf, "%s", "{{ evil }}"]
      register: printed
      changed_when: false
    - name: Fact
      ansible.builtin.set_fact:
        copied: "{{ printed.stdout }}"
        collected: "{{ {printed.stdout: [printed.stdout]} }}"
    - name: Facts, results and variables of a host
      ansible.builtin.copy:
        content: >-
          {{ [printed.stdout, copied, collected.keys() | first, collected.values() | first | first,
              hostvars['node1'].evil, hostvars['node1'].copied] | to_json }}
        dest: "{{ folder }}/facts"
        mode: "0600"
    - name: Loop
      ansible.builtin.copy:
        content: "{{ item }}"
        dest: "{{ folder }}/loop"
        mode: "0600"
      loop: "{{ evil_list }}"
      when: evil | length > 0
    - name: Template
      ansible.builtin.template:
        src: "{{ folder }}/template.j2"
        dest: "{{ folder }}/template"
        mode: "0600"
    - name: Statistics
      ansible.builtin.set_stats:
        data: "{{ {inventory_hostname: printed.stdout} }}"
    - name: Message of a failure
      ansible.builtin.fail:
        msg: "{{ copied }}"
      ignore_errors: true
      register: failed
    - name: Failure
      ansible.builtin.copy:
        content: "{{ failed.msg }}"
        dest: "{{ folder }}/failure"
        mode: "0600"
"""


def play(tmp_path: Path, planned: Path, playbook: str = PLAYBOOK) -> subprocess.CompletedProcess[str]:
    (tmp_path / "site.yml").write_text(playbook)
    (tmp_path / "template.j2").write_text("{{ evil }}")
    command = [
        str(Path(sys.executable).parent / "ansible-playbook"),
        "-i",
        str(planned),
        str(tmp_path / "site.yml"),
    ]
    env = os.environ | {"ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8"}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=tmp_path)


def variables(tmp_path: Path, evil: str) -> dict[str, dict[str, Any]]:
    return {
        "node1": {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "folder": str(tmp_path),
            "evil": evil,
            "evil_list": [evil],
            "evil_map": {evil: evil},
        }
    }


def test_no_text_becomes_a_template(tmp_path: Path, cluster: Cluster) -> None:
    evil = f"{{{{ lookup('pipe', 'touch {tmp_path / 'mark'}; echo ran') }}}}{{% set x = 1 %}}"
    planned = tmp_path / "plan.yml"
    inventory.write(planned, cluster, variables(tmp_path, evil), {})
    done = play(tmp_path, planned)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "mark").exists()
    assert json.loads((tmp_path / "variables").read_text()) == [evil] * 4
    assert json.loads((tmp_path / "facts").read_text()) == [evil] * 6
    for name in ("loop", "template", "failure"):
        assert (tmp_path / name).read_text() == evil


def test_the_same_text_unmarked_runs(tmp_path: Path, cluster: Cluster) -> None:
    """What the test above proves can fail: without the mark Ansible runs the command on the controller."""
    evil = f"{{{{ lookup('pipe', 'touch {tmp_path / 'mark'}; echo ran') }}}}"
    planned = tmp_path / "plan.yml"
    inventory.write(planned, cluster, variables(tmp_path, evil), {})
    planned.write_text(planned.read_text().replace("!unsafe ", ""))
    play(tmp_path, planned, playbook="- hosts: node1\n  gather_facts: false\n  tasks: [debug: {var: evil}]\n")
    assert (tmp_path / "mark").exists()


def test_every_text_that_may_be_a_template_is_marked(tmp_path: Path, cluster: Cluster) -> None:
    planned = tmp_path / "plan.yml"
    value = {"{name}": ["{a", {"b": ("{c}",)}], "number": 1, "lines": "x\ny: '\"{z", "own": "#jinja2:x"}
    inventory.write(planned, cluster, {"node1": {"value": value}}, {})

    class Reader(yaml.SafeLoader):
        """Returns marked text with a sign before it."""

    Reader.add_constructor("!unsafe", lambda loader, node: f"!{loader.construct_scalar(node)}")
    read = yaml.load(planned.read_text(), Reader)["all"]["hosts"]["node1"]["value"]
    assert read == {
        "!{name}": ["!{a", {"b": ["!{c}"]}],
        "number": 1,
        "lines": "!x\ny: '\"{z",
        "own": "!#jinja2:x",
    }
    assert planned.stat().st_mode & 0o777 == 0o600


def test_ansible_reads_what_was_written(tmp_path: Path, cluster: Cluster) -> None:
    """With a mark on each of them Ansible made null, a number and a boolean of these texts."""
    planned = tmp_path / "plan.yml"
    texts = ["", "true", "yes", "null", "~", "010", "1e3", "0x1f", "2026-11-22", "1_000", "=", "a: b", "é\n"]
    value = {"texts": texts, "others": [None, True, 10, 1.5], **dict.fromkeys(texts, "key")}
    inventory.write(planned, cluster, {"node1": {"value": value}}, {})
    argv = [Path(sys.executable).with_name("ansible-inventory"), "-i", planned, "--host", "node1"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["value"] == value


def test_what_is_decided_has_precedence_over_host_vars(tmp_path: Path, cluster: Cluster) -> None:
    """A role's variable may be called like a setting, and so may one of another program."""
    users, folder = tmp_path / "cluster.ini", tmp_path / "planned"
    users.write_text(INVENTORY)
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars" / "node1.yml").write_text("weights_dir: /theirs\nproxy_port: 3128\n")
    folder.mkdir()
    inventory.write(folder / "plan.yml", cluster, {"node1": {"weights_dir": "/{ours"}}, {})
    inventories = ["-i", users, "-i", folder / "plan.yml"]
    argv = [Path(sys.executable).with_name("ansible-inventory"), *inventories, "--host", "node1"]
    found = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    assert (found["weights_dir"], found["proxy_port"]) == ("/{ours", 3128)


def test_a_run_on_some_hosts_has_the_logins_of_all_lab_nodes(tmp_path: Path) -> None:
    path = tmp_path / "lab.ini"
    path.write_text(f"{INVENTORY}lab=true\n[workers]\nnode2 ansible_host=192.0.2.2\n")
    planned = tmp_path / "plan.yml"
    names = ("node1", "node2")
    logins = {
        name: HostAccess(name, "", "admin", None, tmp_path / "key", tmp_path / "known") for name in names
    }
    inventory.write(planned, load([path]), {"node2": {"value": "x"}}, logins)
    loader = type("Loader", (yaml.SafeLoader,), {})
    loader.add_constructor("!unsafe", lambda made, node: node.value)
    hosts = yaml.load(planned.read_text(), loader)["all"]["hosts"]
    assert {name: own["ansible_user"] for name, own in hosts.items()} == {"node1": "admin", "node2": "admin"}
