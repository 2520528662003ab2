"""Open WebUI from 0.12.0 to 0.12.4 with its chats, a restore, and an upgrade that fails after migrating."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from bare_nodes import BareNodes, bare_nodes
from headfirst.control.deployment.lab_nodes import share_dir
from headfirst.control.images import build, recipes
from headfirst.decide.cluster.settings import ClusterSettings
from headfirst.decide.containers.image import ImageRecipe
from readme_lab import ROOT

pytestmark = pytest.mark.lab
OLD, NEW = "headfirst/open-webui:0.12.0", "headfirst/open-webui:0.12.4"
OLD_LOCK = Path(__file__).with_name("open-webui-older.lock")
PLAYBOOK = """\
- hosts: all
  become: true
  gather_facts: false
  vars_files: [{root}/molecule/open_webui/vars/main.yml]
  tasks:
{tasks}
"""
PREPARE = """\
    - ansible.builtin.include_role: {name: headfirst.serving.docker_engine}
    - ansible.builtin.include_role: {name: headfirst.serving.engine_image}
      loop: [{name: "OLD", file: old.tar}, {name: "NEW", file: new.tar}]
      vars:
        engine_image_name: "{{ item.name }}"
        engine_image_source: tarball
        engine_image_tarball: /srv/headfirst/{{ item.file }}
        engine_image_tarball_remote: true
    - ansible.builtin.copy: {src: STAND_IN, dest: /opt/, mode: "0644"}
    - ansible.builtin.command: systemd-run --unit=stand-in-engine python3 /opt/stand_in_engine.py
"""
STAND_IN = ROOT / "molecule" / "open_webui" / "files" / "stand_in_engine.py"
ROLE = """\
    - ansible.builtin.include_role: {name: headfirst.serving.open_webui}
"""
RESTORE = """\
    - ansible.builtin.include_role: {name: headfirst.serving.open_webui, tasks_from: restore}
      vars: {open_webui_backup: BACKUP}
"""
PORT = ClusterSettings().webui_port
SERVE = ["open-webui", "serve", "--host", "0.0.0.0", "--port", str(PORT)]
# It migrates the database, and ends before it answers.
BREAKS = ["sh", "-c", "timeout 40 open-webui serve --host 127.0.0.1 --port 8099; exit 1"]


class Node:
    """A lab node with the images, and the page on it."""

    def __init__(self, nodes: BareNodes, folder: Path) -> None:
        self._folder = folder
        self._address = nodes.addresses[0]
        (folder / "hosts.ini").write_text(
            f"[all]\nnode1 ansible_host={self._address}\n[all:vars]\n{nodes.login}"
        )

    def play(
        self, tasks: str, image: str = NEW, command: list[str] = SERVE
    ) -> subprocess.CompletedProcess[str]:
        playbook = self._folder / "site.yml"
        playbook.write_text(PLAYBOOK.format(root=ROOT, tasks=tasks.rstrip()))
        # Extra variables go before those of the file.
        given = json.dumps({"page_image": image, "page_command": command})
        program = str(Path(sys.executable).parent / "ansible-playbook")
        argv = [program, "-i", "hosts.ini", "-e", given, str(playbook)]
        env = os.environ | {"ANSIBLE_NOCOLOR": "1"}
        return subprocess.run(argv, cwd=self._folder, env=env, capture_output=True, text=True, check=False)

    def must_play(self, tasks: str, image: str = NEW) -> None:
        done = self.play(tasks, image)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr

    def run(self, command: str) -> str:
        argv = ["docker", "exec", "headfirst-test-chat-upgrade-node1", "sh", "-c", command]
        return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    def revision(self) -> str:
        """Which migration the database has."""
        code = (
            "import sqlite3; d=sqlite3.connect('/var/lib/headfirst/webui/webui.db'); "
            "print(d.execute('SELECT version_num FROM alembic_version').fetchone()[0])"
        )
        return self.run(f'python3 -c "{code}"')

    @contextmanager
    def page(self) -> Iterator[httpx.Client]:
        """A session of the administrator."""
        url = f"http://{self._address}:{PORT}"
        body = {"email": "admin@headfirst.local", "password": "example-password"}
        with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
            token = client.post("/api/v1/auths/signin", json=body).raise_for_status().json()["token"]
            client.headers["Authorization"] = f"Bearer {token}"
            yield client


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("upgrade")
    with bare_nodes("test-chat-upgrade", "10.213.73", 1, folder) as found:
        images = share_dir() / "images"
        images.mkdir(exist_ok=True)
        new = build.build(recipes.OPEN_WEBUI, images, lambda what, done, total: None).path
        old = build.build(older(), images, lambda what, done, total: None).path
        shutil.copy(new, folder / "shared" / "new.tar")
        shutil.copy(old, folder / "shared" / "old.tar")
        made = Node(found, folder)
        made.must_play(PREPARE.replace("OLD", OLD).replace("NEW", NEW).replace("STAND_IN", str(STAND_IN)))
        yield made


def older() -> ImageRecipe:
    """The recipe of 0.12.0."""
    digest = hashlib.sha256(OLD_LOCK.read_bytes()).hexdigest()[:8]
    return replace(recipes.OPEN_WEBUI, name=f"older-webui-{digest}", tag=OLD, lock=OLD_LOCK)


def titles(client: httpx.Client) -> list[str]:
    return sorted(chat["title"] for chat in client.get("/api/v1/chats/").raise_for_status().json())


def write_chat(client: httpx.Client, title: str) -> str:
    message = {
        "id": "1",
        "role": "user",
        "content": f"The text of {title}",
        "parentId": None,
        "childrenIds": [],
    }
    chat = {
        "title": title,
        "models": ["demo"],
        "messages": [message],
        "history": {"messages": {"1": message}},
    }
    made = client.post("/api/v1/chats/new", json={"chat": chat}).raise_for_status().json()
    return str(made["id"])


def test_chats_survive_the_upgrade_a_restore_and_an_upgrade_that_fails(node: Node) -> None:
    node.must_play(ROLE, OLD)
    before = node.revision()
    with node.page() as page:
        assert page.get("/api/version").json()["version"] == "0.12.0"
        chat = write_chat(page, "old")
        sent = page.post("/api/v1/files/?process=false", files={"file": ("figures.txt", b"1, 2, 3")})
        file = sent.raise_for_status().json()["id"]

    start = time.monotonic()
    node.must_play(ROLE, NEW)
    print(f"upgrade {time.monotonic() - start:.0f} s, database from {before} to {node.revision()}")
    assert node.revision() != before
    with node.page() as page:
        assert page.get("/api/version").json()["version"] == "0.12.4"
        kept = page.get(f"/api/v1/chats/{chat}").raise_for_status().json()
        assert kept["chat"]["messages"][0]["content"] == "The text of old"
        assert page.get(f"/api/v1/files/{file}/content").raise_for_status().content == b"1, 2, 3"
        write_chat(page, "new")
        assert titles(page) == ["new", "old"]

    # The backup of 0.12.0 was made before 0.12.4 started: its database is migrated again.
    (backup,) = node.run("ls /var/lib/headfirst/webui-backups").split()
    node.must_play(RESTORE.replace("BACKUP", backup.removesuffix(".tar")))
    with node.page() as page:
        assert titles(page) == ["old"]
        assert page.get(f"/api/v1/files/{file}/content").raise_for_status().content == b"1, 2, 3"


def test_an_upgrade_that_fails_returns_to_the_old_image_and_the_old_data(node: Node) -> None:
    node.must_play(
        "    - ansible.builtin.include_role: {name: headfirst.serving.open_webui, tasks_from: stop}\n"
    )
    node.run("rm -r /var/lib/headfirst/webui /var/lib/headfirst/webui-backups")
    node.must_play(ROLE, OLD)
    before = node.revision()
    with node.page() as page:
        write_chat(page, "old")
    failed = node.play(ROLE, NEW, BREAKS)
    assert failed.returncode != 0
    assert "The previous version serves again" in failed.stdout
    assert node.revision() == before
    with node.page() as page:
        assert page.get("/api/version").json()["version"] == "0.12.0"
        assert titles(page) == ["old"]
