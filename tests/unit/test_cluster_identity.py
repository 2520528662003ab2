"""An inventory's identity and secrets on this controller."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from headfirst.common.errors import InputError
from headfirst.control.credentials import identity, secrets
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.types import Cluster

INVENTORY = (
    "[head]\nnode1 ansible_host=192.0.2.11 gpus=8 gpu=A100-80G\n[all:vars]\nmodel=deepseek-ai/DeepSeek-R1\n"
)
FIRST_RUN = """
import sys
from pathlib import Path
from headfirst.control.inventory.inventory import load
from headfirst.control.credentials import identity, secrets
cluster = load([Path(sys.argv[1])])
print(identity.bind(cluster), secrets.load_or_create(cluster).engine_api_key)
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def cluster(folder: Path, name: str = "hosts.ini") -> Cluster:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(INVENTORY)
    return load([folder / name])


def test_the_same_file_name_in_two_folders_is_two_clusters(tmp_path: Path) -> None:
    prod, test = cluster(tmp_path / "prod"), cluster(tmp_path / "test")
    assert prod.name == test.name == "hosts"
    assert identity.bind(prod) != identity.bind(test)
    assert secrets.load_or_create(prod) != secrets.load_or_create(test)
    assert secrets.credentials_file(prod) != secrets.credentials_file(test)


def test_an_id_is_kept_also_for_a_link_to_the_inventory(tmp_path: Path) -> None:
    prod = cluster(tmp_path / "prod")
    assert identity.existing(prod) is None
    adopted = identity.bind(prod, "a" * 32)
    assert adopted == "a" * 32 == identity.existing(prod) == identity.bind(prod, "b" * 32)
    (tmp_path / "link").symlink_to(tmp_path / "prod")
    assert identity.bind(load([tmp_path / "link" / "hosts.ini"])) == "a" * 32


def test_an_id_of_a_moved_inventory_is_bound_nowhere(tmp_path: Path) -> None:
    prod = cluster(tmp_path / "prod")
    id = identity.bind(prod)
    other = cluster(tmp_path / "test")
    assert identity.bound_elsewhere(id, other) == str(tmp_path / "prod" / "hosts.ini")
    (tmp_path / "prod" / "hosts.ini").unlink()
    assert identity.bound_elsewhere(id, other) is None


def test_first_runs_at_once_agree(tmp_path: Path) -> None:
    cluster(tmp_path / "prod")
    command = [sys.executable, "-c", FIRST_RUN, str(tmp_path / "prod" / "hosts.ini")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    runs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        for _ in range(4)
    ]
    outcomes = [run.communicate(timeout=60) for run in runs]
    assert {run.returncode for run in runs} == {0}, outcomes
    assert len({out for out, _ in outcomes}) == 1


@pytest.mark.parametrize("left", ["", "\n", "\0" * 200])
def test_empty_files_are_replaced(tmp_path: Path, left: str) -> None:
    prod = cluster(tmp_path / "prod")
    folder = identity.cluster_folder(prod)
    (folder / "cluster.json").write_text(left)
    (folder / "credentials.json").write_text(left)
    assert identity.bind(prod) == identity.existing(prod)
    made = secrets.load_or_create(prod)
    assert secrets.existing(prod) == made
    assert secrets.credentials_file(prod).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("read", [identity.existing, secrets.existing])
def test_a_cut_file_is_reported_with_its_place(tmp_path: Path, read: object) -> None:
    prod = cluster(tmp_path / "prod")
    folder = identity.cluster_folder(prod)
    (folder / "cluster.json").write_text('{"id": "aa')
    (folder / "credentials.json").write_text('{"engine_api_key": "sk-cutsecret')
    with pytest.raises(InputError) as caught:
        read(prod)  # type: ignore[operator]
    assert str(folder) in str(caught.value)
    assert caught.value.hint
    assert "cutsecret" not in str(caught.value)


def test_a_template_is_no_secret(tmp_path: Path) -> None:
    prod = cluster(tmp_path / "prod")
    path = secrets.credentials_file(prod)
    path.write_text("{\"engine_api_key\": \"{{ lookup('pipe', 'id') }}\"}")
    with pytest.raises(InputError, match="engine_api_key"):
        secrets.existing(prod)


def test_a_write_that_is_killed_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prod = cluster(tmp_path / "prod")
    before = secrets.load_or_create(prod)

    def die(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", die)
    with pytest.raises(KeyboardInterrupt):
        secrets.save(prod, before.rotated())
    assert secrets.existing(prod) == before
    assert sorted(path.name for path in identity.cluster_folder(prod).iterdir()) == ["credentials.json"]


def test_a_rotation_replaces_every_secret_and_remembers_the_old_password() -> None:
    before = secrets.Secrets(webui_admin_email="me@example.org")
    after = before.rotated()
    assert after.webui_admin_email == before.webui_admin_email
    assert not set(before.values()) & set(after.applied().values())
    assert after.webui_admin_password_before == before.webui_admin_password
    assert after.is_rotating
    assert not after.applied().is_rotating
    assert before.webui_admin_password in after.values()
