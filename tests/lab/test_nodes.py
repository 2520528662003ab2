"""Lab nodes are bare servers: reached over checked SSH, rebooted, taken up again, gone without a trace."""

import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import docker
import pytest
from headfirst.common.errors import NotReadyError
from headfirst.control.lab import lifecycle, nodes, types
from headfirst.control.machine import engine

pytestmark = pytest.mark.lab
NODES = (
    types.LabNode("node1", "10.213.98.11", memory="512m", cpus=0.5),
    types.LabNode("node2", "10.213.98.12"),
)


class Bench:
    """The lab under test, and short ways to look at it."""

    def __init__(self, described: types.Lab) -> None:
        self.lab = described
        self.up()

    def up(self) -> None:
        self.access = lifecycle.up(self.lab, lambda what, done, total: None)

    def ssh(self, address: str, command: str, **options: str) -> subprocess.CompletedProcess[str]:
        known_hosts = options.get("known_hosts", str(self.access.known_hosts))
        argv = ["ssh", "-F", "none", "-i", str(self.access.private_key), "-o", "BatchMode=yes"]
        argv += ["-o", "StrictHostKeyChecking=yes", "-o", f"UserKnownHostsFile={known_hosts}"]
        argv += [f"{options.get('user', self.access.user)}@{address}", command]
        return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)

    def output(self, address: str, command: str) -> str:
        done = self.ssh(address, command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def containers(self) -> dict[str, docker.models.containers.Container]:
        client = engine.connect()
        assert client is not None
        return nodes.find(client, self.lab)

    def started(self) -> dict[str, str]:
        return {name: found.attrs["State"]["StartedAt"] for name, found in self.containers().items()}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    shared = tmp_path_factory.mktemp("shared")
    (shared / "weights.txt").write_text("from the host")
    described = types.Lab(
        "test-nodes", "10.213.98.0/24", NODES, tmp_path_factory.mktemp("state") / "lab", shared
    )
    try:
        yield Bench(described)
    finally:
        lifecycle.down(described)


def test_a_node_is_a_server_with_systemd_and_its_own_name(bench: Bench) -> None:
    for node in NODES:
        assert bench.output(node.address, "hostname") == node.name
        assert bench.output(node.address, "systemctl is-system-running") == "running"
        assert bench.output(node.address, "sudo -n id -u") == "0"
    assert bench.output(NODES[0].address, "getent hosts node2").split() == ["10.213.98.12", "node2"]


def test_only_the_key_opens_and_never_for_root(bench: Bench) -> None:
    assert "Permission denied (publickey)" in bench.ssh(NODES[0].address, "true", user="root").stderr


def test_a_foreign_host_key_is_refused(bench: Bench, tmp_path: Path) -> None:
    first, second = (line.split(maxsplit=1)[1] for line in bench.access.known_hosts.read_text().splitlines())
    assert first != second
    swapped = tmp_path / "known_hosts"
    swapped.write_text(f"{NODES[0].address} {second}")
    assert (
        "Host key verification failed" in bench.ssh(NODES[0].address, "true", known_hosts=str(swapped)).stderr
    )


def test_keys_are_for_their_owner_alone(bench: Bench) -> None:
    assert bench.lab.state_dir.stat().st_mode & 0o777 == 0o700
    assert bench.access.private_key.stat().st_mode & 0o777 == 0o600


def test_no_privileges_beyond_what_is_asked_for_and_the_limits_hold(bench: Bench) -> None:
    host = bench.containers()["node1"].attrs["HostConfig"]
    assert host["Privileged"] is False
    assert host["CapDrop"] == ["ALL"]
    assert "SYS_TIME" not in host["CapAdd"]
    assert (host["Memory"], host["NanoCpus"]) == (2**29, 500_000_000)
    hog = "python3 -c 'import os; len(os.urandom(1) * 2**29)'"
    too_much = bench.ssh(NODES[0].address, hog)
    assert too_much.returncode != 0
    assert bench.ssh(NODES[1].address, hog).returncode == 0


def test_the_shared_folder_is_seen_and_cannot_be_written(bench: Bench) -> None:
    assert bench.output(NODES[1].address, "sudo cat /srv/headfirst/weights.txt") == "from the host"
    assert "Read-only" in bench.ssh(NODES[1].address, "sudo touch /srv/headfirst/x").stderr


def test_a_file_that_docker_would_mount_can_be_replaced(bench: Bench) -> None:
    command = "sudo cp /etc/hosts /etc/hosts.new && sudo mv /etc/hosts.new /etc/hosts && cat /etc/hosts"
    assert "10.213.98.12\tnode2" in bench.output(NODES[1].address, command)


def test_apt_and_pip_work_inside(bench: Bench) -> None:
    install = "sudo apt-get -q update && sudo apt-get -qy install --no-install-recommends python3-venv"
    bench.output(NODES[1].address, install)
    bench.output(NODES[1].address, "python3 -m venv /tmp/venv && /tmp/venv/bin/pip install -q six")
    assert (
        bench.output(NODES[1].address, "/tmp/venv/bin/python -c 'import six; print(six.__name__)'") == "six"
    )


def test_changed_settings_reach_nodes_that_run_and_what_they_cannot_use_is_named(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bench.started()
    (tmp_path / "pins.txt").write_text("six==1.16.0\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "pins.txt"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    warnings: list[str] = []
    lifecycle.up(bench.lab, lambda what, done, total: None, warnings.append)
    assert [text for text in warnings if f"find-links: {tmp_path}" in text]
    for node in NODES:
        assert bench.output(node.address, "sudo cat /etc/headfirst-lab/pip/0-pins.txt") == "six==1.16.0"
        assert "constraint = /etc/headfirst-lab/pip/0-pins.txt" in bench.output(
            node.address, "cat /etc/pip.conf"
        )
    bench.output(NODES[1].address, "/tmp/venv/bin/pip install -q --force-reinstall six")
    version = bench.output(NODES[1].address, "/tmp/venv/bin/python -c 'import six; print(six.__version__)'")
    assert version == "1.16.0"
    monkeypatch.delenv("PIP_CONSTRAINT")
    bench.up()
    assert bench.ssh(NODES[0].address, "sudo ls /etc/headfirst-lab/pip/0-pins.txt").returncode != 0
    assert bench.started() == before


def test_what_runs_is_left_alone_and_quickly(bench: Bench) -> None:
    before = bench.started()
    begin = time.monotonic()
    bench.up()
    assert bench.started() == before
    assert time.monotonic() - begin < 20  # 0.2 s on an idle machine; a start of the nodes takes longer


def test_a_missing_node_is_made_and_a_stopped_one_started(bench: Bench) -> None:
    bench.output(NODES[1].address, "echo kept >kept")
    before = bench.started()
    nodes.remove(bench.containers()["node1"])
    bench.containers()["node2"].stop()
    bench.up()
    assert bench.output(NODES[1].address, "cat kept") == "kept"
    assert bench.output(NODES[0].address, "hostname") == "node1"
    assert set(bench.started()) == set(before)


def test_volumes_of_an_interrupted_removal_are_not_used_again(bench: Bench) -> None:
    """Their node is gone, and what is left in them may be a part."""
    bench.output(
        NODES[0].address, "sudo mkdir /var/lib/docker/overlay2 && sudo touch /var/lib/containerd/part"
    )
    bench.containers()["node1"].remove(force=True)
    bench.up()
    for folder in ("docker", "containerd"):
        assert bench.output(NODES[0].address, f"sudo ls -A /var/lib/{folder}") == ""


def test_a_reboot_from_inside_comes_back_with_another_boot_id(bench: Bench) -> None:
    boot_id = "cat /proc/sys/kernel/random/boot_id"
    before = bench.output(NODES[1].address, f"echo kept >rebooted; {boot_id}")
    time.sleep(10)  # Docker restarts what has run for 10 s, and counts what has not as a failed start
    bench.ssh(NODES[1].address, "sudo reboot")
    end = time.monotonic() + 60
    while (again := bench.ssh(NODES[1].address, boot_id)).returncode != 0 or again.stdout.strip() == before:
        assert time.monotonic() < end, again.stderr
        time.sleep(0.5)
    assert bench.output(NODES[1].address, "cat rebooted") == "kept"


def test_a_node_that_dies_at_start_is_told_with_its_last_words(bench: Bench) -> None:
    broken = bench.containers()["node1"]
    broken.stop()
    script = "#!/bin/sh\necho the disk has gone\nexit 7\n"
    broken.put_archive("/", nodes.archive({"usr/local/sbin/headfirst-node-init": (script, 0o755, 0)}))
    with pytest.raises(NotReadyError, match=r"(?s)node1: .*exit code 7.*the disk has gone"):
        bench.up()
    nodes.remove(broken)
    bench.up()


def test_a_changed_description_makes_only_that_node_anew(bench: Bench) -> None:
    before = bench.started()
    bench.lab = replace(bench.lab, nodes=(replace(NODES[0], memory="2g"), NODES[1]))
    bench.up()
    after = bench.started()
    assert after["node2"] == before["node2"]
    assert bench.containers()["node1"].attrs["HostConfig"]["Memory"] == 2**31


def test_a_subnet_in_use_is_refused(bench: Bench, tmp_path: Path) -> None:
    twin = replace(bench.lab, name="test-twin", state_dir=tmp_path / "twin")
    try:
        with pytest.raises(NotReadyError, match=r"10\.213\.98\.0/24 overlaps"):
            lifecycle.up(twin, lambda what, done, total: None)
    finally:
        lifecycle.down(twin)


def test_down_leaves_nothing_and_status_says_so(bench: Bench) -> None:
    assert [(found.state, found.ssh) for found in lifecycle.status(bench.lab)] == [("running", True)] * 2
    lifecycle.down(bench.lab)
    assert [(found.state, found.ssh) for found in lifecycle.status(bench.lab)] == [("absent", False)] * 2
    client = engine.connect()
    if client is not None:  # it was stopped, if this lab had started it
        assert not bench.containers()
        assert not client.networks.list(names=[bench.lab.network_name])
        assert not client.volumes.list(filters={"label": f"{nodes.LABEL}=test-nodes"})
    assert not bench.lab.state_dir.exists()
    lifecycle.down(bench.lab)  # once more does no harm
