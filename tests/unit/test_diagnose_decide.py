"""Where it began: the earliest cause over all nodes, not the loudest and not the last."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line
from diagnosing import BEGIN, SERVES, START, container, diagnose, ended, node
from headfirst.decide.diagnose.types import Event, HttpAnswer, NodeFacts, RankContainer

OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
LOST = "RuntimeError: [pair.cc:547] Connection closed by peer [10.0.0.2]:1234"
TIMEOUT = (
    "[rank1]:[E ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL("
)
SIGQUIT = "Received sigquit from a child process. It usually means the child failed."
PORT = "OSError: [Errno 98] Address already in use"
TRACEBACK = {
    20.0: "Traceback (most recent call last):",
    20.1: '  File "deepseek_v2.py", line 7, in forward',
    20.2: "    return self.moe(x)",
    20.3: "KeyError: 'colour'",
    20.4: "RuntimeError: and what came of it",
}


def first(*nodes: NodeFacts) -> Event:
    found = diagnose(nodes).decisive
    assert found is not None
    return found


def test_a_cause_goes_before_what_follows_from_it() -> None:
    found = diagnose(
        [node(0, ended(0, {30.0: LOST, 31.0: SIGQUIT}, 40)), node(1, ended(1, {29.0: OUT_OF_MEMORY}, 35))]
    )
    assert found.decisive is not None
    assert (found.decisive.host, found.decisive.rule) == ("node2", "out-of-memory")
    assert found.decisive.lines == [OUT_OF_MEMORY]
    assert [event.rule for event in found.then] == ["lost-peer"]
    assert not found.ready


NO_GPUS = 'could not select device driver "" with capabilities: [[gpu]]'
NEVER_STARTED: dict[str, Any] = {
    "status": "created", "running": False, "exit_code": 128, "error": NO_GPUS, "started_at": 0.0,
}  # fmt: skip
HANGS = {20.0: "KeyError: 1", 21.0: "[TP0] Scheduler hit an exception: Traceback (most recent call last):"}
WAITED = {121.0: "torch.distributed.DistStoreError: Timed out after 121 seconds waiting for clients."}
LOADING = {5.0: "Load weight begin."}


@pytest.mark.parametrize(
    ("head", "worker", "host", "rule"),
    [
        (ended(0, {50.0: OUT_OF_MEMORY}, 60), ended(1, {20.0: PORT}, 60), "node2", "port-in-use"),
        # A cause decides although a timeout was logged before it.
        (ended(0, {600.0: TIMEOUT}, 601), ended(1, {602.0: OUT_OF_MEMORY}, 610), "node2", "out-of-memory"),
        # A rank that hangs after its crash is dead.
        (container(0, HANGS), container(1, {}), "node1", "unknown-error"),
        # One that was killed a moment after its peer noticed is the cause.
        (ended(0, {29.0: LOST}, 40), ended(1, {}, 29.3, exit_code=137), "node2", "rank-ended"),
        # One that was stopped after a timeout is not its reason.
        (ended(0, WAITED, 125), ended(1, {1.0: BEGIN}, 140, exit_code=137), "node1", "rank-missing"),
        (
            ended(0, {30.2: LOST}, 40),
            ended(1, LOADING, 30, exit_code=137, oom_killed=True),
            "node2",
            "container-oom",
        ),
        (container(0, {1.0: BEGIN}), container(1, {}, **NEVER_STARTED), "node2", "no-container-toolkit"),
    ],
)
def test_which_rank_and_which_rule_decide(
    head: RankContainer, worker: RankContainer, host: str, rule: str
) -> None:
    found = first(node(0, head), node(1, worker))
    assert (found.host, found.rule) == (host, rule)


def test_an_unknown_failure_gives_the_first_lines_of_the_rank_that_died_first() -> None:
    later = {45.0: "ValueError: I am only the last one to die"}
    found = first(node(0, ended(0, later, 46)), node(1, ended(1, {**TRACEBACK, 21.0: SIGQUIT}, 25)))
    assert (found.host, found.rule) == ("node2", "unknown-error")
    assert found.lines[-2:] == ["KeyError: 'colour'", "RuntimeError: and what came of it"]
    assert found.lines[0].startswith("File")
    assert "--rank 1" in found.fix


def test_a_harmless_error_long_before_the_crash_is_not_it() -> None:
    log = {1.0: "ImportError: no optional thing, going on", 300.0: "KeyError: 'x'"}
    assert first(node(0, ended(0, log, 301))).lines[-1] == "KeyError: 'x'"


def test_an_error_after_the_peers_were_lost_is_no_reason() -> None:
    log = {30.0: LOST, 50.0: "KeyError: what falls over later"}
    found = first(node(0, ended(0, log, 60)), node(1, ended(1, LOADING, 29, exit_code=137)))
    assert (found.host, found.rule) == ("node2", "rank-ended")
    assert "killed (signal 9)" in found.means


@pytest.mark.parametrize(("owner", "counts"), [("1" * 64, True), ("f" * 64, False)])
def test_the_kernel_speaks_of_this_container_and_not_of_others(owner: str, counts: bool) -> None:
    said = f"oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/docker/{owner},task=python3,pid=7"
    dead = node(1, ended(1, {}, 30, exit_code=137), kernel=(Line(START + 29, said),))
    assert (first(node(0, container(0)), dead).rule == "kernel-oom") is counts


def test_a_broken_gpu_and_one_that_broke_long_ago() -> None:
    xid = "NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus"
    broken = node(1, ended(1, {25.0: LOST}, 30), kernel=(Line(START + 20, xid), Line(START - 9000, xid)))
    found = first(node(0, ended(0, {25.0: LOST}, 30)), broken)
    assert (found.host, found.rule, found.at) == ("node2", "xid-hardware", START + 20)


def test_a_driver_that_was_changed_under_the_container() -> None:
    said = ("Failed to initialize NVML: Driver/library version mismatch", "NVML library version: 570.195")
    found = first(node(0, ended(0, {20.0: "RuntimeError: no GPU"}, 21), driver=said))
    assert (found.rule, found.source) == ("driver-library-mismatch", "NVIDIA driver")


def test_a_service_that_works_is_not_ill() -> None:
    over = {5.0: LOST, 9.0: "The server is fired up and ready to roll!"}
    found = diagnose([node(0, container(0, over), health=SERVES), node(1, container(1))])
    assert found.ready
    assert found.decisive is None
    assert found.then == found.notes == []


def test_an_engine_that_loads_is_neither_ready_nor_ill() -> None:
    loading = {5.0: BEGIN, 6.0: "Init torch distributed ends.", 7.0: "Load weight begin."}
    found = diagnose(
        [node(0, container(0, loading), health=HttpAnswer(503, "")), node(1, container(1, loading))]
    )
    assert not found.ready
    assert found.decisive is None
    assert [state.doing for state in found.nodes] == ["loading weights"] * 2


def test_what_the_run_before_a_restart_died_of() -> None:
    before = (Line(START - 50, OUT_OF_MEMORY), Line(START - 49, SIGQUIT))
    found = diagnose([node(0, container(0, restarts=2, earlier=before), health=SERVES)])
    assert [(note.rule, note.at) for note in found.notes] == [("restarted", START - 50)]
    assert OUT_OF_MEMORY in found.notes[0].lines


def test_the_driver_and_the_images_cuda_are_in_the_sentence() -> None:
    line = "RuntimeError: The NVIDIA driver on your system is too old (found version 12020)."
    gpus = ({"driver_version": "535.161.08", "utilization.gpu": "0", "utilization.memory": "0"},)
    known = first(node(0, ended(0, {5: line}, at=6, cuda="13.0.1"), gpus=gpus))
    assert known.means == "this host's driver 535.161.08 is too old for the CUDA 13.0.1 of the image"
    hostile = first(node(0, ended(0, {5: line}, at=6, cuda="$(id)")))
    assert hostile.means == "this host's driver is too old for the CUDA of the image"
