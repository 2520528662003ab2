"""A role without its arguments names those that are missing, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml
from documented import ROOT


def required(role: Path) -> list[str]:
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    return sorted(name for name, option in specs["main"]["options"].items() if option.get("required"))


def test_a_missing_argument_is_named(tmp_path: Path) -> None:
    wanted = {role.name: required(role) for role in sorted((ROOT / "roles").iterdir())}
    wanted = {role: names for role, names in wanted.items() if names}
    assert "weights" in wanted and len(wanted) > 5
    play = tmp_path / "play.json"
    written = {
        "content": "{{ ansible_failed_result.msg }}",
        "dest": f"{tmp_path}/{{{{ role }}}}",
        "mode": "600",
    }
    tasks = [
        {
            "block": [{"include_role": {"name": f"headfirst.serving.{role}"}}],
            "rescue": [{"copy": written}],
            "vars": {"role": role},
        }
        for role in wanted
    ]
    play.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", str(play)],
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "false"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    said = {role: (tmp_path / role).read_text() for role in wanted}
    assert said == {
        role: f"Validation of arguments failed:\nmissing required arguments: {', '.join(names)}"
        for role, names in wanted.items()
    }
