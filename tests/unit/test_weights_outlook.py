"""A node that lacks files waits as long as they can still come, and no longer."""

from __future__ import annotations

import time

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.node.weights.outlook import Outlook
from headfirst.node.weights.transfer.board import Board, Member, Overview
from headfirst.node.weights.transfer.link import PeerRefused
from transfer_hosts import KEY

LONG, NO_TIME = 60.0, -1.0
GONE = NotReadyError("no node before this one answers")


def board(**origin: object) -> Board:
    """That of member 1 of three; what the origin says, if it says something."""
    board = Board(1, 3, KEY)
    board.describe(Overview(1, {}, {"a": 1, "b": 1}))
    if origin:
        board.merge_members({0: Member(beat=1, **origin)})  # type: ignore[arg-type]
    return board


def test_one_that_lacks_nothing_needs_nobody() -> None:
    Outlook(board(error="disk full"), NO_TIME).check(frozenset(), 2, GONE)


def test_a_failed_origin_ends_the_wait_at_once() -> None:
    with pytest.raises(NotReadyError, match="brings the weights failed: disk full"):
        Outlook(board(error="disk full"), LONG).check({"a"}, 1, None)


def test_what_another_member_has_is_waited_for_without_the_origin() -> None:
    with_copy = board(error="disk full")
    with_copy.merge_members({2: Member(beat=1, have=frozenset({"a", "b"}))})
    Outlook(with_copy, LONG).check({"a"}, 1, GONE)
    with_copy.merge_members({2: Member(beat=2, have=frozenset({"a", "b"}), error="disk full")})
    with pytest.raises(NotReadyError):
        Outlook(with_copy, LONG).check({"a"}, 1, None)


def test_one_that_is_cut_off_waits_while_something_comes() -> None:
    outlook = Outlook(board(ready=True), 0.1)
    for here in range(4):
        time.sleep(0.06)
        outlook.check({"a"}, here, GONE)
    time.sleep(0.2)
    with pytest.raises(NotReadyError, match="no node before this one answers"):
        outlook.check({"a"}, here, GONE)


def test_one_that_is_refused_does_not_wait() -> None:
    with pytest.raises(PeerRefused):
        Outlook(board(ready=True), LONG).check({"a"}, 1, PeerRefused("another token"))


@pytest.mark.parametrize("origin", [{}, {"done": True}])
def test_an_origin_that_has_no_more_to_bring_or_is_silent_is_not_waited_for_forever(
    origin: dict[str, object],
) -> None:
    with pytest.raises(NotReadyError, match="nothing was received for"):
        Outlook(board(**origin), NO_TIME).check({"a"}, 1, None)


def test_an_origin_that_still_brings_is_waited_for() -> None:
    heard = board(ready=True)
    outlook = Outlook(heard, 0.1)
    outlook.check({"a"}, 1, None)
    time.sleep(0.2)
    heard.merge_members({0: Member(beat=2)})
    outlook.check({"a"}, 1, None)


def test_the_origin_does_not_wait_for_a_member_that_lent_it_a_file_and_is_gone() -> None:
    origin = Board(0, 2, KEY)
    origin.describe(Overview(1, {}, {"a": 1}))
    Outlook(origin, LONG).check({"a"}, 0, None)
    with pytest.raises(NotReadyError, match="nothing was received for"):
        Outlook(origin, NO_TIME).check({"a"}, 0, None)
