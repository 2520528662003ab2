"""What members tell each other: merged in any order it ends the same; strangers are not listened to."""

from __future__ import annotations

import http.client
import os

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.node.peers.authentication import Admission
from headfirst.node.weights.proof.hashing import Hasher
from headfirst.node.weights.proof.manifest import check_names
from headfirst.node.weights.transfer.board import Board, Member, Overview, mask, unmask
from headfirst.node.weights.transfer.link import PeerRefused
from headfirst.node.weights.transfer.messages import absorb, compose
from transfer_hosts import KEY, exchange_news, listening

PORT = 24_000 + os.getpid() % 900
HEAD, MEMBER = "127.0.6.1", "127.0.6.2"


def proof(data: bytes):  # type: ignore[no-untyped-def]
    hasher = Hasher()
    hasher.update(data)
    return hasher.finish()


def overview(epoch: int, **sizes: int) -> Overview:
    return Overview(epoch, {"model": "m"}, sizes)


def told(speaker: Board, listener: Board) -> None:
    """Both directions, as a call and its answer are, until neither has news."""
    for _ in range(4):
        absorb(listener, compose(speaker, compose(listener, None)))
        absorb(speaker, compose(listener, compose(speaker, None)))


def test_news_pass_from_board_to_board() -> None:
    first, middle, last = Board(0, 3, KEY), Board(1, 3, KEY), Board(2, 3, KEY)
    first.describe(overview(7, a=3, b=1))
    first.announce({"a": proof(b"abc")})
    told(first, middle)
    told(middle, last)
    assert last.overview == first.overview
    assert last.proofs() == {"a": proof(b"abc")}
    last.report(have=frozenset("a"), ready=True)
    told(last, middle)
    told(middle, first)
    assert first.members[2].have == {"a"}
    assert first.members[2].ready
    assert not first.everybody_has("a")
    first.report(have=frozenset("a"))
    middle.report(done=True)
    told(middle, first)
    assert first.everybody_has("a")


def test_what_was_heard_late_does_not_undo_what_was_heard_first() -> None:
    board, other = Board(0, 2, KEY), Board(1, 2, KEY)
    board.describe(overview(1, a=1))
    told(board, other)
    old = compose(other, None)
    other.report(have=frozenset("a"))
    absorb(board, compose(other, None))
    absorb(board, old)
    assert board.members[1].have == {"a"}


def test_an_origin_that_starts_again_is_believed_and_older_news_are_not() -> None:
    origin, member = Board(0, 2, KEY), Board(1, 2, KEY)
    origin.describe(overview(1, a=3, b=1))
    origin.announce({"a": proof(b"abc"), "b": proof(b"b")})
    told(origin, member)
    told(origin, member)
    member.report(have=frozenset({"a", "b"}))
    stale = compose(member, None)
    again = Board(0, 2, KEY)
    again.describe(overview(2, a=4, c=1))
    told(again, member)
    assert member.overview == again.overview
    assert member.members[1].have == frozenset()
    assert "b" not in member.proofs()
    absorb(again, stale)
    assert again.members[1].have == frozenset()


def test_a_proof_that_is_not_of_the_overviews_size_is_not_taken() -> None:
    board = Board(0, 2, KEY)
    board.describe(overview(1, a=4))
    board.announce({"a": proof(b"abc"), "stranger": proof(b"x")})
    assert board.proofs() == {}


@pytest.mark.parametrize("names", [set(), {"a"}, {"a", "c", "f"}])
def test_masks(names: set[str]) -> None:
    order = list("abcdef")
    assert unmask(mask(names, order), order) == names


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/../../b", ".ssh/authorized_keys", ""])
def test_no_file_outside_the_folder_can_be_named(name: str) -> None:
    with pytest.raises(UntrustedError, match=r"does not stay inside its folder|hidden"):
        check_names(["config.json", name], "http://head")


def test_a_peer_that_names_such_a_file_is_not_obeyed() -> None:
    origin, member = Board(0, 2, KEY), Board(1, 2, KEY)
    origin.describe(Overview(1, {}, {"../../etc/passwd": 3}))
    with (
        listening(origin, HEAD, [MEMBER], port=PORT),
        pytest.raises(PeerRefused, match="does not stay inside its folder"),
    ):
        exchange_news(member, MEMBER, HEAD, port=PORT)
    assert member.overview is None


def test_only_members_with_the_token_are_answered() -> None:
    board = Board(0, 2, KEY)
    board.describe(overview(1, a=1))
    with listening(board, HEAD, [MEMBER], port=PORT):
        member = Board(1, 2, KEY)
        exchange_news(member, MEMBER, HEAD, port=PORT)
        assert member.overview == board.overview
        with pytest.raises(PeerRefused, match="its token differs"):
            exchange_news(Board(1, 2, KEY), MEMBER, HEAD, "guess", port=PORT)
        with pytest.raises(PeerRefused, match="does not list this host's address"):
            exchange_news(Board(1, 2, KEY), "127.0.6.3", HEAD, port=PORT)
        stranger = http.client.HTTPConnection(HEAD, PORT)
        stranger.request("GET", "/")
        assert stranger.getresponse().status == 403
        stranger.close()


def test_an_answer_without_the_token_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    impostor, member = Board(0, 2, KEY), Board(1, 2, KEY)
    impostor.describe(overview(9, a=1))
    monkeypatch.setattr(Admission, "refusal", lambda *_: None)
    with (
        listening(impostor, HEAD, [MEMBER], "guess", port=PORT),
        pytest.raises(PeerRefused, match="does not have the transfer's token"),
    ):
        exchange_news(member, MEMBER, HEAD, port=PORT)
    assert member.overview is None
    assert member.members[0] == Member(beat=member.members[0].beat)


def test_a_port_that_is_taken_is_named() -> None:
    with (
        listening(Board(0, 2, KEY), HEAD, [], port=PORT),
        pytest.raises(NotReadyError, match=f"cannot listen on {HEAD} port {PORT}"),
    ):
        listening(Board(0, 2, KEY), HEAD, [], port=PORT)


def test_an_origin_whose_clock_went_back_is_believed() -> None:
    member = Board(1, 2, KEY)
    told(origin_of(overview(900, a=3)), member)
    again = origin_of(overview(5, b=1))
    told(again, member)
    assert member.overview == again.overview
    assert again.overview
    assert again.overview.sizes == {"b": 1}


def test_an_origin_that_hears_of_its_earlier_start_first_is_believed_too() -> None:
    member = Board(1, 2, KEY)
    told(origin_of(overview(900, a=3)), member)
    again = Board(0, 2, KEY)
    told(again, member)
    assert again.overview is None
    again.describe(overview(5, b=1))
    told(again, member)
    assert member.overview == again.overview


def origin_of(overview: Overview) -> Board:
    board = Board(0, 2, KEY)
    board.describe(overview)
    return board


def test_a_member_whose_clock_went_back_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    origin, relay, last = Board(0, 3, KEY), Board(1, 3, KEY), Board(2, 3, KEY)
    origin.describe(overview(1, a=1))
    for _ in range(2):
        told(origin, relay)
        told(relay, last)
        last.report(have=frozenset("a"), done=True)
    monkeypatch.setattr("time.time_ns", lambda: 1)
    again = Board(2, 3, KEY)
    told(relay, again)
    again.report(ready=True)
    told(relay, again)
    told(origin, relay)
    assert not origin.members[2].done
    assert origin.members[2].ready
