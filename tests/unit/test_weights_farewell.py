"""A member that ends reports it to all others itself, however late its own threads for news are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from transfers import Members, ended
from weights_checkpoints import two_shards, write_checkpoint

_LATE = """
import time
from headfirst.node.weights.transfer.chain import Chain
hear = Chain._try
def hear_late(self, *arguments, **options):  # as on a host that gives the threads no time
    if self._board.member(self._board.index).done:
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
