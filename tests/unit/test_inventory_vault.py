"""Ansible Vault: values and files are decrypted as Ansible does; without the password nothing is shown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from headfirst.common.errors import InputError
from headfirst.control.cli import passwords
from headfirst.control.inventory.inventory import load
from headfirst.control.inventory.login import ASKED

PASSWORD, SECRET = "correct horse", "s3cret {{ of }} mine"
INVENTORY = "[head]\nn1 ansible_host=192.0.2.11\n[all:vars]\nmodel=org/model\n"


def encrypted(folder: Path, *words: str, text: str = SECRET) -> str:
    program = Path(sys.executable).with_name("ansible-vault")
    done = subprocess.run(
        [program, *words, "--vault-password-file", folder / "password"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
        env={"LC_ALL": "C.UTF-8", "HOME": str(folder)},
    )
    return done.stdout


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE", raising=False)
    monkeypatch.delenv("ANSIBLE_VAULT_IDENTITY_LIST", raising=False)
    (tmp_path / "password").write_text(PASSWORD + "\n")
    (tmp_path / "wrong").write_text("battery staple\n")
    (tmp_path / "hosts.ini").write_text(INVENTORY)
    (tmp_path / "group_vars" / "all").mkdir(parents=True)
    value = encrypted(tmp_path, "encrypt_string", "--stdin-name", "my_password")
    (tmp_path / "group_vars" / "all" / "values.yml").write_text(
        f"{value}\nansible_password: '{{{{ my_password }}}}'\n"
        f"ansible_become_password: '{{{{ my_sudo | default(my_password) }}}}'\n"
    )
    return tmp_path / "hosts.ini"


def test_a_vaulted_value(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(inventory.with_name("password")))
    login = load([inventory]).head.login
    assert login.password == SECRET
    assert login.become
    assert login.become.password == SECRET
    assert SECRET not in repr(login)


def test_a_vaulted_file(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = inventory.parent
    sealed = encrypted(folder, "encrypt", "--output", "-", text="my_sudo: other\nengine_port: 31000\n")
    (folder / "group_vars" / "all" / "sealed.yml").write_text(sealed)
    with pytest.raises(InputError, match="encrypted with Ansible Vault") as caught:
        load([inventory])
    assert str(caught.value.where).endswith(("sealed.yml", "hosts.ini", "sealed.yml:1"))
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(folder / "password"))
    cluster = load([inventory])
    assert cluster.services[0].settings.engine_port == 31000
    assert cluster.head.login.become
    assert cluster.head.login.become.password == "other"


@pytest.mark.parametrize("group", ["all", "gpu"])
def test_a_vaulted_file_of_an_inventory_of_services(inventory: Path, group: str) -> None:
    folder = inventory.parent
    inventory.write_text("[gpu]\nn1 ansible_host=192.0.2.11\n[gpu:vars]\nmodel=org/model\n")
    (folder / "group_vars" / "all" / "values.yml").unlink()
    sealed = encrypted(folder, "encrypt", "--output", "-", text="engine_port: 31000\n")
    (folder / "group_vars" / group).mkdir(exist_ok=True)
    (folder / "group_vars" / group / "sealed.yml").write_text(sealed)
    with pytest.raises(InputError, match="encrypted with Ansible Vault") as caught:
        load([inventory])
    assert "--vault-password-file" in str(caught.value.hint)


@pytest.mark.parametrize("given", [None, "wrong"])
def test_without_the_password(inventory: Path, monkeypatch: pytest.MonkeyPatch, given: str | None) -> None:
    if given:
        monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(inventory.with_name(given)))
    with pytest.raises(InputError) as caught:
        load([inventory])
    assert "is encrypted with Ansible Vault" in caught.value.what
    assert str(caught.value.where).rpartition(":")[0].endswith("values.yml")
    assert "--vault-password-file" in str(caught.value.hint)
    for shown in ("$ANSIBLE_VAULT", "3635", SECRET):
        assert shown not in str(caught.value)


def test_a_vaulted_value_that_nothing_uses(inventory: Path) -> None:
    values = inventory.parent / "group_vars" / "all" / "values.yml"
    values.write_text("\n".join(line for line in values.read_text().splitlines() if "{{" not in line))
    assert load([inventory]).head.login.password is None


def test_a_password_file_that_does_not_exist(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(inventory.with_name("missing")))
    with pytest.raises(InputError, match="vault password"):
        load([inventory])


def deploy(*words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    """The command on a terminal of its own, with answers to what it asks."""
    program = (
        "import pty, sys, os\n"
        "pid, fd = pty.fork()\n"
        "if pid == 0: os.execv(sys.argv[2], sys.argv[2:])\n"
        "import time\n"
        "answers = sys.argv[1].encode()\n"
        "seen = b''\n"
        "while True:\n"
        "    try: part = os.read(fd, 65536)\n"
        "    except OSError: break\n"
        "    if not part: break\n"
        "    seen += part\n"
        "    if part.rstrip().endswith(b'password:') and answers:\n"
        "        os.write(fd, answers); answers = b''\n"
        "sys.stdout.buffer.write(seen)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    command = [sys.executable, "-c", program, typed, str(Path(sys.executable).with_name("deploy")), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def plan(inventory: Path, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    demo = "model_source=demo model=headfirst-demo engine_device=cpu engine_image_source=build cpu_cores=0-3"
    settings = [word for setting in demo.split() for word in ("-e", setting)]
    return deploy("plan", str(inventory), "--json", *settings, *words, typed=typed)


def test_the_option_that_asks(inventory: Path) -> None:
    done = plan(inventory, "--ask-vault-pass", typed=f"{PASSWORD}\n")
    assert done.returncode == 0, done.stdout
    assert PASSWORD not in done.stdout
    assert SECRET not in done.stdout


def test_the_option_with_a_file(inventory: Path) -> None:
    done = plan(inventory, "--vault-password-file", str(inventory.with_name("password")))
    assert done.returncode == 0, done.stdout
    refused = plan(inventory, "--vault-password-file", str(inventory.with_name("missing")))
    assert refused.returncode == 2
    error = json.loads(refused.stdout)["error"]
    assert error["where"] == "--vault-password-file"


def test_typed_passwords_are_for_hosts_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text(INVENTORY + "[workers]\nn2 ansible_host=192.0.2.12 ansible_password=own\n")
    answers = iter(["typed", ""])
    monkeypatch.setattr(passwords, "_ask", lambda question: next(answers))
    monkeypatch.setattr(ASKED, "login", None)
    monkeypatch.setattr(ASKED, "become", None)

    given = {"vault_password_file": None, "vault_id": None, "ask_vault_pass": False, "json": True}
    passwords.accept(given := given | {"ask_pass": True, "ask_become_pass": True})
    assert given == {"json": True}
    hosts = load([path]).hosts
    assert [host.login.password for host in hosts] == ["typed", "own"]
    assert [host.login.become.password for host in hosts if host.login.become] == ["typed", "typed"]
