"""The rules of role host_tuning close the ports of one cgroup: a LAN, programs that listen, this kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils import host_cgroups, host_firewall
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource
from host_tuning_role import rules
from netns import Lan

HERE = Path(__file__).parent
MOUNT = Path("/sys/fs/cgroup")
# Beside cgroup v1 the other hierarchy has a place of its own.
CGROUPS = MOUNT if (MOUNT / "cgroup.controllers").exists() else MOUNT / "unified"
SLICE = f"hf{os.getpid()}-ranks.slice"
RANK = CGROUPS / f"hf{os.getpid()}.slice" / SLICE / "docker-0123.scope"
PROGRAM = CGROUPS / f"hf{os.getpid()}.service"
CHOSEN, SERVED, OTHER = 40001, 20000, 40002
ADDRESSES = ("10.99.0.1", "fd99::1")
LISTENED = [
    f"{protocol} {address} {port}"
    for protocol in ("tcp", "udp")
    for address in ADDRESSES
    for port in (CHOSEN, SERVED, OTHER)
]
# A rank on node 1, a peer on node 2, a stranger on node 3.
NODE, PEER, STRANGER = range(3)


@contextmanager
def cgroups(*folders: Path) -> Iterator[None]:
    """The folders as cgroups; they and those above them are removed, once the programs are gone."""
    try:
        for folder in folders:
            folder.mkdir(parents=True)
        yield
    finally:
        for folder in (RANK, RANK.parent, RANK.parent.parent, PROGRAM):
            if folder.exists():
                folder.rmdir()


@pytest.fixture(scope="module")
def lan() -> Iterator[Lan]:
    with cgroups(RANK, PROGRAM), Lan(3, None) as lan:
        for number in (1, 2, 3):
            own = ["address", "add", f"fd99::{number}/64", "dev", "eth0", "nodad"]
            assert lan.run(number - 1, ["ip", *own]).wait() == 0
        for cgroup, ports in ((RANK, (CHOSEN, SERVED)), (PROGRAM, (OTHER,))):
            listener = [sys.executable, str(HERE / "listener.py"), str(cgroup), *map(str, ports)]
            process = lan.run(NODE, listener, stdout=subprocess.PIPE)
            assert process.stdout and process.stdout.readline() == b"listens\n"
        yield lan
        lan.close()


class Caller:
    """A program on one node that calls others."""

    def __init__(self, lan: Lan, node: int) -> None:
        argv = [sys.executable, str(HERE / "caller.py")]
        process = lan.run(node, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._stdin, self._stdout = self._pipes(process)

    @staticmethod
    def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[str], IO[str]]:
        assert process.stdin and process.stdout
        return process.stdin, process.stdout  # type: ignore[return-value]

    def reached(self, places: Sequence[str]) -> set[str]:
        """Those of the places ("tcp 10.99.0.1 20000") that answer."""
        found = set()
        for place in places:
            self._stdin.write(f"{place}\n")
            self._stdin.flush()
            if self._stdout.readline() == "answers\n":
                found.add(place)
        return found


def nft(lan: Lan, *arguments: str, text: str = "") -> str:
    """What nft prints on the node; it looks for cgroups at the place that they have without v1."""
    script = 'mount --bind "$0" /sys/fs/cgroup && exec nft "$@"'
    argv = [f"--net={lan.namespace(NODE)}", "unshare", "--mount", "sh", "-c", script, str(CGROUPS)]
    done = subprocess.run(
        ["nsenter", *argv, *arguments], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def load(lan: Lan, ports: Sequence[str] = ("20001",), slice_name: str = SLICE) -> None:
    """The role's rules, as its unit loads them."""
    text = rules(
        "firewall.nft.j2",
        host_tuning_rendezvous_ports=list(ports),
        host_tuning_ranks_slice=slice_name,
        host_tuning_served_ports=[str(SERVED)],
        host_tuning_peers=["10.99.0.2", "fd99::2"],
    )
    nft(lan, "--file", "-", text=text)


def test_every_port_of_the_ranks_is_closed_and_no_other(lan: Lan) -> None:
    """TCP and UDP, IPv4 and IPv6; connections that were open go on."""
    stranger, peer, own = Caller(lan, STRANGER), Caller(lan, PEER), Caller(lan, NODE)
    assert stranger.reached(LISTENED) == set(LISTENED)
    load(lan)
    established = [place for place in LISTENED if place.startswith("tcp")]
    assert stranger.reached(established) == set(established)

    meant_for_all = {place for place in LISTENED if place.endswith(str(OTHER))}
    meant_for_all |= {f"tcp {address} {SERVED}" for address in ADDRESSES}
    assert Caller(lan, STRANGER).reached(LISTENED) == meant_for_all
    assert peer.reached(LISTENED) == set(LISTENED)
    here = [*LISTENED, f"tcp 127.0.0.1 {CHOSEN}", f"udp ::1 {CHOSEN}"]
    assert own.reached(here) == set(here)


def test_monitoring_from_reaches_the_ports_with_metrics_alone(lan: Lan) -> None:
    """A port of the slice and one that is closed by number; the other node's address is in no network."""
    text = rules(
        "firewall.nft.j2",
        host_tuning_rendezvous_ports=[str(OTHER), str(SERVED)],
        host_tuning_ranks_slice=SLICE,
        host_tuning_peers=["10.99.0.9"],
        host_tuning_monitors={"10.99.0.3": [CHOSEN, OTHER], "10.98.0.0/16": [SERVED]},
    )
    nft(lan, "--file", "-", text=text)
    scraped = {f"tcp 10.99.0.1 {port}" for port in (CHOSEN, OTHER)}
    left = Caller(lan, STRANGER).reached(LISTENED) - scraped
    assert left == {f"udp {address} {OTHER}" for address in ADDRESSES}
    assert Caller(lan, STRANGER).reached(sorted(scraped)) == scraped
    assert not Caller(lan, PEER).reached(sorted(scraped))


def test_a_range_of_ports_is_closed_without_cgroups(lan: Lan) -> None:
    """As that of Mooncake: its TCP ports, and no other port."""
    load(lan, [f"{SERVED}-{CHOSEN}"], "")
    closed = {f"tcp {address} {port}" for address in ADDRESSES for port in (CHOSEN, SERVED)}
    assert Caller(lan, STRANGER).reached(LISTENED) == set(LISTENED) - closed
    assert Caller(lan, PEER).reached(LISTENED) == Caller(lan, NODE).reached(LISTENED) == set(LISTENED)


def test_a_slice_that_was_made_again_needs_the_rules_again(lan: Lan) -> None:
    """The rules have the number of the cgroup that was there when they were loaded."""
    load(lan)
    assert host_firewall.digest(nft(lan, "list", "table", *host_firewall.TABLE))
    gone = CGROUPS / f"hf{os.getpid()}gone.slice"
    gone.mkdir()
    text = rules("firewall.nft.j2", host_tuning_ranks_slice=gone.name)
    nft(lan, "--file", "-", text=text)
    gone.rmdir()
    gone.mkdir()
    try:
        assert host_firewall.digest(nft(lan, "list", "table", *host_firewall.TABLE)) == ""
    finally:
        gone.rmdir()


def test_this_kernel_is_found_to_have_the_expression() -> None:
    """The rule that hosts are asked with is taken where nothing but the hierarchy is in the way."""
    asked = host_cgroups.RULE.replace("system.slice", str(CGROUPS.relative_to("/sys/fs/cgroup")))
    assert asked != host_cgroups.RULE
    for rule, expected in ((asked, True), (asked.replace("cgroupv2", "cgroupv3"), False)):
        assert host_cgroups.takes(HostSource(), (), rule) is expected
