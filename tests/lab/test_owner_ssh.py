"""Owner, lock and credentials over real SSH: two controllers, processes that are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from live_sshd import Sshd

pytestmark = pytest.mark.lab
pytest_plugins = ["live_sshd"]

# Every address of the server is a host with folders of its own; what was in an argument is kept.
SESSION = """\
set -eu
root={folder}/hosts/$(echo "$SSH_CONNECTION" | cut -d' ' -f3)
mkdir -p "$root/etc" "$root/var/lib" "$root/run"
printf '%s\\n' "$SSH_ORIGINAL_COMMAND" >>{folder}/argv
command=$(printf '%s' "$SSH_ORIGINAL_COMMAND" |
  sed -E "s#Path\\(.(/(etc|var/lib|run)/headfirst).\\)#Path(\\"$root\\1\\")#")
case "$command" in
  *"$root/etc/headfirst"*"$root/run/headfirst"*) eval "$command" ;;
  *) echo 'not the script of the hosts' >&2; exit 99 ;;
esac
"""
UP = """
import sys, time
from pathlib import Path
from headfirst.control.inventory.inventory import load
from headfirst.control.deployment.running.claim import claimed
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.run.reporters.reporter import QuietReporter
path = Path(sys.argv[1])
with claimed(load([path]), RunOptions([path]), "up", QuietReporter()) as claim:
    print(claim.secrets.engine_api_key, flush=True)
    sys.stdin.readline()
"""


class Site:
    """The hosts 127.0.0.2 and 127.0.0.3, and controllers."""

    def __init__(self, sshd: Sshd, folder: Path) -> None:
        self.sshd = sshd
        self.folder = folder
        self.children: list[subprocess.Popen[str]] = []
        sshd.program("session", SESSION.format(folder=sshd.folder))
        public = sshd.folder / "key.pub"
        public.write_text(f'command="{sshd.folder}/bin/session" {public.read_text()}')

    def inventory(self, name: str, *hosts: int) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        lines = [f"n{number} ansible_host=127.0.0.{number} address=192.0.2.{number}" for number in hosts]
        path.write_text(
            f"[head]\n{lines[0]}\n[workers]\n" + "\n".join(lines[1:]) + "\n[all:vars]\n"
            f"ansible_user=root\nansible_port={self.sshd.port}\n"
            f"ansible_ssh_private_key_file={self.sshd.folder}/key\n"
            f"ansible_ssh_common_args=-o UserKnownHostsFile={self.sshd.folder}/known_hosts\n"
            "engine_device=cpu\nmodel_source=demo\n"
        )
        return path

    def environment(self, controller: str) -> dict[str, str]:
        return {
            **os.environ,
            "XDG_STATE_HOME": str(self.folder / controller),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }

    def begin(self, path: Path, controller: str) -> tuple[subprocess.Popen[str], str]:
        """A run that holds the hosts until its stdin closes, and the API key that it uses."""
        child = subprocess.Popen(
            [sys.executable, "-c", UP, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment(controller),
        )
        self.children.append(child)
        assert child.stdout
        key = child.stdout.readline().strip()
        assert key.startswith("sk-")
        return child, key

    def run(self, path: Path, controller: str) -> str:
        """A run that ends well; the API key that it used."""
        child, key = self.begin(path, controller)
        child.communicate("\n", timeout=60)
        assert child.returncode == 0
        return key

    def deploy(self, controller: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "headfirst.control.cli.main", *words],
            capture_output=True,
            text=True,
            env=self.environment(controller),
            check=False,
        )

    def record(self, number: int, path: str) -> dict[str, Any] | None:
        file = self.file(number, path)
        return json.loads(file.read_text()) if file.exists() else None

    def file(self, number: int, path: str) -> Path:
        return self.sshd.folder / "hosts" / f"127.0.0.{number}" / path.lstrip("/")


@pytest.fixture
def site(sshd: Sshd, tmp_path: Path) -> Iterator[Site]:
    site = Site(sshd, tmp_path)
    yield site
    for child in site.children:
        child.kill()
        child.communicate()


def test_two_controllers_at_once_and_one_is_killed(site: Site) -> None:
    mine, copy = site.inventory("mine/hosts.ini", 2, 3), site.inventory("copy/hosts.ini", 2, 3)
    first, key = site.begin(mine, "controller1")
    refused = site.deploy("controller2", "release", str(copy))
    lock = site.record(2, "/run/headfirst/lock.json") or {}
    assert refused.returncode == 3, refused.stderr
    for part in ("another run changes this host", lock["holder"], str(first.pid), lock["since"]):
        assert part in refused.stderr
    first.kill()
    first.communicate()
    assert site.record(3, "/run/headfirst/lock.json")
    # The lease lasts, but the process is gone: the next run does not wait for it.
    assert site.run(copy, "controller2") == key
    assert site.record(3, "/run/headfirst/lock.json") is None


def test_a_second_controller_shows_the_same_credentials(site: Site) -> None:
    path = site.inventory("hosts.ini", 2, 3)
    key = site.run(path, "controller1")
    assert site.file(2, "/etc/headfirst/credentials.json").stat().st_mode & 0o777 == 0o600
    shown = site.deploy("controller2", "credentials", str(path), "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["engine_api_key"] == key
    to_a_pipe = site.deploy("controller2", "credentials", str(path))
    assert to_a_pipe.returncode == 2
    assert key not in to_a_pipe.stdout + to_a_pipe.stderr
    assert key not in (site.sshd.folder / "argv").read_text()


def test_a_foreign_host_is_refused_then_released(site: Site) -> None:
    first, second = site.inventory("first.ini", 2, 3), site.inventory("second.ini", 3)
    site.run(first, "controller1")
    refused = site.deploy("controller2", "down", str(second), "--plain")
    assert refused.returncode == 3
    owner = site.record(3, "/etc/headfirst/owner.json") or {}
    for part in ("n3: the host belongs to cluster first", owner["who"], owner["since"]):
        assert part in refused.stderr
    command = f"deploy release {second} --limit n3 --cluster first"
    assert command in refused.stderr
    released = site.deploy("controller2", *command.split()[1:])
    assert released.returncode == 0, released.stderr
    site.run(second, "controller2")
    assert (site.record(3, "/etc/headfirst/owner.json") or {})["cluster"] == "second"
    assert (site.record(2, "/etc/headfirst/owner.json") or {})["cluster"] == "first"


def test_a_lease_of_a_controller_that_is_gone_ends(site: Site) -> None:
    path = site.inventory("hosts.ini", 2, 3)
    first, _ = site.begin(path, "controller1")
    for number in (2, 3):
        file = site.file(number, "/run/headfirst/lock.json")
        file.write_text(json.dumps({**json.loads(file.read_text()), "controller": "gone"}))
    first.kill()
    first.communicate()
    refused = site.deploy("controller2", "release", str(path), "--wait", "1")
    assert refused.returncode == 3
    assert "waited 1 s" in refused.stderr
    for number in (2, 3):
        file = site.file(number, "/run/headfirst/lock.json")
        file.write_text(json.dumps({**json.loads(file.read_text()), "ends": 1}))
    site.run(path, "controller2")


def test_a_rotation_needs_a_service(site: Site) -> None:
    refused = site.deploy("controller1", "credentials", str(site.inventory("hosts.ini", 2)), "--rotate")
    assert refused.returncode == 3
    assert "is not up" in refused.stderr


def test_data_is_deleted_only_after_a_confirmation(site: Site) -> None:
    path = site.inventory("hosts.ini", 2)
    site.run(path, "controller1")
    data = site.file(2, "/var/lib/headfirst/weights")
    data.parent.mkdir()
    data.write_bytes(b"x" * 3_000_000)
    refused = site.deploy("controller1", "down", str(path), "--data", "--plain")
    assert refused.returncode == 2
    assert "n2  3.0 MB" in refused.stderr
    assert "--yes" in refused.stderr
    assert data.exists()
