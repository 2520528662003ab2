"""Processes that are killed, stopped, gone or of another time in the midst of a transfer."""

from __future__ import annotations

import random
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import dishonest_member
import pytest
from fake_hub import MODEL, FakeHub, running
from headfirst.node.weights.convert.convert_folder import convert
from headfirst.node.weights.files import list_files
from headfirst.node.weights.proof.verify import verify
from lan_members import (
    HEADERS,
    IN_FLIGHT,
    LIMIT_S,
    MAIN,
    MB,
    SHARD,
    SHARDS,
    LanMembers,
    counted,
    fetching,
    network_of,
)
from transfers import Members, ended

pytestmark = pytest.mark.lab

HOUR = 3600
FETCHED_AT_A_TIME = 8
KILLS = 6
GONE_AFTER_S = 10.0
"""Where a member stays away: the others do not wait the product's minute."""


@contextmanager
def hub_at(members: LanMembers, source: Path) -> Iterator[FakeHub]:
    """A hub on the origin, as fast as the links."""
    files = {name: (source / name).read_bytes() for name in list_files(source)}
    with network_of(members.lan, 0), running(files) as hub:
        hub.rate = 12.5 * MB / FETCHED_AT_A_TIME
        yield hub


def hub_fetching(hub: FakeHub, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Arguments, and environment."""
    return ["@/fp8", "--model", MODEL], {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "home")}


def test_a_relay_that_is_killed_and_started_again_goes_on(
    members: LanMembers, source: Path, size: int
) -> None:
    with counted(members) as wires:
        members.start_all(fetching(source))
        members.await_done(1, size / 2)
        members.kill(1)
        members.start(1, fetching(source))
        members.end_all()
    assert len(members.digests()) == 1
    assert wires[0][1] < HEADERS * size + IN_FLIGHT, "one copy left the origin"
    assert wires[1][0] < HEADERS * size + IN_FLIGHT
    assert wires[3][0] < HEADERS * size + IN_FLIGHT
    verify(members.home(1) / "fp8", deep=True)


def test_a_relay_that_is_gone_for_good_is_left_out(members: LanMembers, source: Path, size: int) -> None:
    members.silence_s = GONE_AFTER_S
    with counted(members) as wires:
        members.start_all(fetching(source))
        members.await_done(2, size / 3)
        members.kill(2)
        members.end_all(but=[2])
    assert len(members.digests(but=[2])) == 1
    assert wires[0][1] < HEADERS * size + IN_FLIGHT, "one copy left the origin"
    assert wires[3][0] < HEADERS * size + IN_FLIGHT
    verify(members.home(3) / "fp8", deep=True)


def test_a_killed_origin_fetches_nothing_twice(members: LanMembers, source: Path, size: int) -> None:
    with hub_at(members, source) as hub, counted(members) as wires:
        command, environment = hub_fetching(hub, members.folder)
        members.start_all(command, **environment)
        members.await_done(3, size / 3)
        members.kill(0)
        whole = [name for name in list_files(members.home(0) / "fp8") if name.endswith(".safetensors")]
        members.start(0, command, **environment)
        members.end_all()
        assert whole
        assert all(hub.sent[name] == (source / name).stat().st_size for name in whole)
        assert hub.sent.total() <= size + (SHARDS - len(whole)) * SHARD
    assert len(members.digests()) == 1
    for received, sent in wires[1:-1]:
        assert received < HEADERS * size + IN_FLIGHT
        assert sent < HEADERS * size + IN_FLIGHT
    verify(members.home(3) / "fp8", deep=True)


class OneGoes(Members):
    """Member 1 ends when it is asked for what it fetched. Loopback: all reach the hub."""

    def spawn(self, index: int, argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        program, option, _, *arguments = argv
        run = [program, option, MAIN]
        if index == 1:
            run = [program, dishonest_member.__file__, dishonest_member.GONE, ""]
        times = {"CLOCK_WRONG_BY_S": "0", "SILENCE_S": str(GONE_AFTER_S)}
        return super().spawn(index, [*run, *arguments], {**environment, **times})


def test_what_a_member_fetched_and_never_passed_on_the_head_fetches(tmp_path: Path, source: Path) -> None:
    files = {name: (source / name).read_bytes() for name in list_files(source)}
    members = OneGoes(tmp_path, 3)
    with running(files) as hub:
        hub.rate = 12.5 * MB / FETCHED_AT_A_TIME
        command, environment = hub_fetching(hub, tmp_path)
        command += ["--fetch", "all"]
        with ended(members.start(index, command, **environment) for index in range(3)) as (head, gone, last):
            gone.wait(LIMIT_S)
            for process in (head, last):
                _, errors = process.communicate(timeout=LIMIT_S)
                assert process.returncode == 0, errors
    assert members.result(0)["digest"] == members.result(2)["digest"]
    verify(members.home(2) / "fp8", deep=True)


def test_after_one_full_copy_the_others_need_no_origin(members: LanMembers, source: Path, size: int) -> None:
    members.silence_s = GONE_AFTER_S
    for index in (0, 1, 2):
        members.start(index, fetching(source))
    members.await_done(1, size * 0.7)
    members.start(3, fetching(source))
    members.await_done(1, size)
    members.kill(0)
    assert members.done(3) < size / 2
    members.end_all(but=[0])
    assert len(members.digests(but=[0])) == 1
    verify(members.home(3) / "fp8", deep=True)


def has_come_to(members: LanMembers, index: int, size: float) -> Callable[[], bool]:
    """Whether a member reports `size` bytes, or, on a loaded machine, has ended before the test saw that."""
    return lambda: members.done(index) >= size or members.has_ended(index)


def test_processes_killed_at_any_moment_come_to_the_same_result(
    members: LanMembers, source: Path, size: int
) -> None:
    command = [*fetching(source), "--convert-to", "@/bf16"]
    by_chance = random.Random(3)
    with counted(members) as wires:
        members.start_all(command)
        for share in sorted(by_chance.uniform(0.05, 0.95) for _ in range(KILLS)):
            index = by_chance.randrange(members.count)
            members.await_that(has_come_to(members, index, size * share), index)
            members.kill_and_run_again(index, command)
        members.end_all()
    undisturbed, _ = convert(source, members.folder / "undisturbed")
    assert members.digests() == {undisturbed.digest}
    for index in range(members.count):
        verify(members.home(index) / "bf16", deep=True)
        assert not list((members.home(index) / "fp8").glob("*.safetensors"))
    assert sum(received for received, _ in wires) < HEADERS * 3 * size + KILLS * SHARD


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_member_says_so_and_goes_on_when_it_is_run_again(
    members: LanMembers, source: Path, size: int, how: signal.Signals
) -> None:
    with counted(members) as wires:
        members.start_all(fetching(source))
        members.await_done(1, size / 2)
        for index in (0, 1):
            members.running[index].send_signal(how)
        for index in (0, 1):
            assert "Stopped. Run the same command again to continue." in members.end(index, 130)
            members.start(index, fetching(source))
        members.end_all()
    assert len(members.digests()) == 1
    assert wires[1][0] < HEADERS * size + IN_FLIGHT


def test_no_clock_needs_to_be_right(members: LanMembers, source: Path, size: int) -> None:
    members.clock_wrong_by_s |= {0: 9 * HOUR, 1: -9 * HOUR, 2: 3 * HOUR}
    with counted(members) as wires:
        members.start_all(fetching(source))
        members.await_done(3, size / 3)
        for index in (0, 2):
            members.kill(index)
            members.clock_wrong_by_s[index] = -5 * HOUR
            members.start(index, fetching(source))
        members.end_all()
    assert len(members.digests()) == 1
    for received, _ in wires:
        assert received < HEADERS * size + IN_FLIGHT
