"""A single role in a playbook outside the repository: from the wheel, and from the collection's tarball."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bare_nodes import BareNodes, bare_nodes
from readme_lab import ROOT

pytestmark = pytest.mark.lab
UV = str(Path(sys.executable).parent / "uv")

PLAYBOOK = """\
- hosts: all
  become: true
  gather_facts: false
  roles:
    - role: headfirst.serving.docker_engine
      vars:
        docker_engine_log_max_size: 7m
  tasks:
    - name: Ask the engine that the role installed
      ansible.builtin.command: docker info --format {% raw %}{{.ServerVersion}}{% endraw %}
      changed_when: false
    - name: Check the setting that was asked for
      ansible.builtin.command: grep -q 7m /etc/docker/daemon.json
      changed_when: false
"""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareNodes]:
    with bare_nodes("test-reuse", "10.213.96", 1, tmp_path_factory.mktemp("lab")) as found:
        yield found


def run(*command: str, folder: Path, **env: str) -> str:
    # Without the variables of this checkout's own environment, as on another machine.
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE", "PYTHON"))}
    done = subprocess.run(command, cwd=folder, env=clean | env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def environment(folder: Path, *packages: str) -> Path:
    """A fresh virtual environment with these packages; its bin folder."""
    run(UV, "venv", "--quiet", "--python", sys.executable, "venv", folder=folder)
    run(UV, "pip", "install", "--quiet", "--python", "venv/bin/python", *packages, folder=folder)
    return folder / "venv" / "bin"


def play(tools: Path, folder: Path, nodes: BareNodes, **env: str) -> str:
    (folder / "site.yml").write_text(PLAYBOOK)
    (folder / "hosts.ini").write_text(
        f"[all]\nnode1 ansible_host={nodes.addresses[0]}\n[all:vars]\n{nodes.login}"
    )
    return run(str(tools / "ansible-playbook"), "-i", "hosts.ini", "site.yml", folder=folder, **env)


def test_after_pip_install_of_the_wheel(nodes: BareNodes, tmp_path: Path) -> None:
    run(UV, "build", "--quiet", "--wheel", "--out-dir", str(tmp_path), str(ROOT), folder=tmp_path)
    [wheel] = tmp_path.glob("headfirst-*.whl")
    tools = environment(tmp_path, str(wheel))
    assert "failed=0" in play(tools, tmp_path, nodes)
    said = run(str(tools / "deploy"), "plan", str(ROOT / "inventories" / "lab.ini"), folder=tmp_path)
    assert "--tp 2" in said


def test_after_ansible_galaxy_install_of_the_tarball(nodes: BareNodes, tmp_path: Path) -> None:
    tools = environment(tmp_path, "ansible-core>=2.19,<2.20")
    galaxy = str(tools / "ansible-galaxy")
    run(galaxy, "collection", "build", str(ROOT), "--output-path", str(tmp_path), folder=tmp_path)
    [tarball] = tmp_path.glob("headfirst-serving-*.tar.gz")
    run(galaxy, "collection", "install", str(tarball), "--offline", "-p", "collections", folder=tmp_path)
    assert "failed=0" in play(tools, tmp_path, nodes, ANSIBLE_COLLECTIONS_PATH=str(tmp_path / "collections"))
