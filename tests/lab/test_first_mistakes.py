"""What a new user gets wrong on real hosts: one clear paragraph and its exit code."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bare_nodes import BareNodes, bare_nodes
from headfirst.control import demo
from headfirst.decide.cluster.settings import ServiceSettings
from readme_lab import deploy

PORT = ServiceSettings().engine_port
pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareNodes]:
    with bare_nodes("test-mistakes", "10.213.97", 2, tmp_path_factory.mktemp("lab")) as found:
        yield found


def on_node(node: str, command: str) -> None:
    subprocess.run(["docker", "exec", f"headfirst-test-mistakes-{node}", "sh", "-c", command], check=True)


def refusal(nodes: BareNodes, folder: Path, more: str = "", worker: str = "", code: int = 3) -> str:
    """What `deploy check` says, on one line."""
    done = deploy("check", inventory=nodes.two_hosts(folder, more, worker=worker), options=["--plain"])
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


def test_hosts_that_are_ready(nodes: BareNodes, tmp_path: Path) -> None:
    done = deploy("check", inventory=nodes.two_hosts(tmp_path), options=["--plain"])
    # With the warning that a node is a container, whose ranks' ports no rule by cgroup can close.
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Ready." in done.stdout
    assert "no rule by cgroup can close the ranks' ports" in done.stdout


def test_a_node_that_does_not_answer(nodes: BareNodes, tmp_path: Path) -> None:
    said = refusal(nodes, tmp_path, worker="ansible_host=10.213.97.99")
    assert "node2" in said
    assert "10.213.97.99" in said


def test_a_wrong_key(nodes: BareNodes, tmp_path: Path) -> None:
    key = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    said = refusal(nodes, tmp_path, f"ansible_ssh_private_key_file={key}")
    assert "node1" in said
    assert str(key) in said


def test_no_sudo(nodes: BareNodes, tmp_path: Path) -> None:
    for node in ("node1", "node2"):
        on_node(
            node,
            "id plain || (useradd --create-home plain && install -d -o plain -m 700 /home/plain/.ssh"
            " && install -o plain -m 600 /home/headfirst/.ssh/authorized_keys /home/plain/.ssh/)",
        )
    assert "sudo" in refusal(nodes, tmp_path, "ansible_user=plain")


def test_a_full_disk(nodes: BareNodes, tmp_path: Path) -> None:
    on_node("node2", "mkdir -p /small && mount -t tmpfs -o size=1m tmpfs /small")
    on_node("node1", "mkdir -p /small")
    said = refusal(nodes, tmp_path, "weights_dir=/small")
    assert "node2" in said
    assert "/small" in said


def test_a_port_in_use(nodes: BareNodes, tmp_path: Path) -> None:
    on_node("node1", f"systemd-run --unit squatter python3 -m http.server {PORT}")
    try:
        said = refusal(nodes, tmp_path)
    finally:
        on_node("node1", "systemctl stop squatter")
    assert "node1" in said
    assert str(PORT) in said


def put_demo_model(nodes: BareNodes, folder: str) -> None:
    shutil.copytree(demo.checkpoint_dir(), nodes.described.shared_dir / "model", dirs_exist_ok=True)
    on_node("node1", f"rm -rf {folder} && cp -r /srv/headfirst/model {folder}")


def test_a_truncated_shard_on_the_head(nodes: BareNodes, tmp_path: Path) -> None:
    put_demo_model(nodes, "/data")
    shard = sorted(demo.checkpoint_dir().glob("*.safetensors"))[1].name
    on_node("node1", f"truncate --no-create --size=-100 /data/{shard}")
    said = refusal(nodes, tmp_path, "model_source=path\nmodel=/data")
    assert f"node1:/data/{shard}" in said


def test_a_model_folder_without_weights_on_the_head(nodes: BareNodes, tmp_path: Path) -> None:
    put_demo_model(nodes, "/data")
    on_node("node1", "rm /data/model*")
    said = refusal(nodes, tmp_path, "model_source=path\nmodel=/data", code=2)
    assert "/data has no weights" in said
