"""A member that ends reports it to all others itself, however late its own threads for news are."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from headfirst.node.weights import pipeline
from headfirst.node.weights.fetch.fetching import FetchRequest
from headfirst.node.weights.fetch_origin import FetchOrigin
from headfirst.node.weights.layers import FileNeeds
from headfirst.node.weights.pipeline import Outcome, Pipeline
from headfirst.node.weights.transfer.chain import Chain
from headfirst.node.weights.transfer.transport import Transfer
from transfer_hosts import KEY, PORT, TOKEN, hosts
from transfers import LIMIT_S, Members, ended
from weights_checkpoints import SHARD_1, two_shards, write_checkpoint

__all__ = ["hosts"]  # a fixture

_LATE = """
import time
from headfirst.node.weights.transfer.chain import Chain
hear = Chain._try
def hear_late(self, *arguments, **options):  # as on a host that gives the threads no time
    if self._board.members[self._board.index].done:
        time.sleep(3)
    return hear(self, *arguments, **options)
Chain._send, Chain._try = lambda self, exchange: None, hear_late
from headfirst.node.weights.cli import main
main()
"""
_LESS_THAN_A_SILENCE_S = 30  # the others wait 60 s for a member of which they receive nothing


class LateMembers(Members):
    def spawn(self, index: int, argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        if index == 0:
            return super().spawn(index, argv, environment)
        return super().spawn(index, [sys.executable, "-c", _LATE, *argv[3:]], environment)


def test_nobody_waits_for_a_member_that_has_ended(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "source", two_shards())
    members = LateMembers(tmp_path, 3)
    arguments = ["@/fp8", "--model", str(tmp_path / "source"), "--from", "path"]
    with ended(members.start(index, arguments) for index in range(3)) as processes:
        for process in processes:
            _, errors = process.communicate(timeout=_LESS_THAN_A_SILENCE_S)
            assert process.returncode == 0, errors


def test_the_progress_of_one_that_is_done_names_who_is_waited_for(
    hosts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "source", two_shards())
    monkeypatch.setenv("HEADFIRST_PROGRESS_FILE", str(tmp_path / "progress.json"))
    monkeypatch.setattr(pipeline, "_SILENCE_S", 1.0)
    _run(0, hosts, tmp_path)
    note = json.loads((tmp_path / "progress.json").read_text())["note"]
    assert note.endswith(f"waits for {hosts[1]}")


def test_a_member_that_starts_again_while_the_head_ends_gets_its_files(
    hosts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "source", two_shards())
    real = Chain.farewell
    again_at: list[int] = []

    def farewell(chain: Chain) -> None:
        """That of the head takes until the member is back."""
        while chain._board.index == 0 and (not again_at or chain._board.members[1].beat < again_at[0]):
            time.sleep(0.01)
        real(chain)

    monkeypatch.setattr(Chain, "farewell", farewell)
    with ThreadPoolExecutor(2) as pool:
        head = pool.submit(_run, 0, hosts, tmp_path)
        assert pool.submit(_run, 1, hosts, tmp_path).result(LIMIT_S).changed
        (tmp_path / "1" / SHARD_1).unlink()
        again_at.append(time.time_ns())
        assert pool.submit(_run, 1, hosts, tmp_path).result(LIMIT_S).changed
        head.result(LIMIT_S)
    assert (tmp_path / "1" / SHARD_1).is_file()


def _run(index: int, hosts: list[str], folder: Path) -> Outcome:
    """One of two members in this process, with its folder in `folder`; the head fetches `source` there."""
    transfer = Transfer([[host] for host in hosts[:2]], index, PORT, TOKEN, KEY)
    request, home, needs = (
        FetchRequest("path", str(folder / "source")),
        folder / str(index),
        FileNeeds(index, 2),
    )
    origin = FetchOrigin(request, home, None, keep_source=True, needs=needs) if index == 0 else None
    return Pipeline(transfer, home, origin=origin, needs=needs).run()
