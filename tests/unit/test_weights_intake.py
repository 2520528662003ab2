"""What a node takes in while the origin is started again with other files."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from headfirst.node.weights.intake import Intake
from headfirst.node.weights.layers import FileNeeds
from headfirst.node.weights.proof.hashing import FileHash, hash_file
from headfirst.node.weights.store import Store
from headfirst.node.weights.transfer.board import Board, Claim, Member, Overview
from headfirst.node.weights.transfer.receiver import Event, ReceivedFile
from transfer_hosts import KEY


@dataclass
class FakeTransport:
    """Brings nothing by itself."""

    received: list[FileHash] = field(default_factory=list)
    happened: list[Event] = field(default_factory=list)
    offered: list[str] = field(default_factory=list)

    def receive(self, _name: str, proof: FileHash, _path: Path) -> None:
        self.received.append(proof)

    def offer(self, name: str, _proof: FileHash, _path: Path) -> None:
        self.offered.append(name)

    def events(self, timeout: float) -> list[Event]:
        time.sleep(timeout)
        happened, self.happened = self.happened, []
        return happened

    def forget(self, _name: str) -> None:
        pass

    def move(self, _name: str, _path: Path) -> None:
        pass

    def progress(self) -> dict[str, int]:
        return {}


def test_a_file_that_is_being_named_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the new version's first bytes would get the name, and the proof, of the old one."""
    go_on = threading.Event()
    settle = Store.settle

    def slowly(self: Store, name: str, proof: FileHash) -> None:
        go_on.wait(10)
        settle(self, name, proof)

    monkeypatch.setattr(Store, "settle", slowly)
    proofs = []
    for version in ("old", "new"):
        (tmp_path / version).write_bytes(os.urandom(1000))
        proofs.append(hash_file(tmp_path / version))
    board, transport = Board(1, 2, KEY), FakeTransport()
    store = Store(tmp_path / "got")
    intake = Intake(board, store, transport, FileNeeds(1, 2), lambda _name: False)  # type: ignore[arg-type]
    board.describe(Overview(1, {}, {"a": 1000}))
    board.merge_claims({"a": Claim(proofs[0], "signed")})
    intake.step(0)
    (tmp_path / "old").replace(intake._store.parts / "a")
    transport.happened.append(ReceivedFile("a"))
    intake.step(0)
    board.describe(Overview(2, {}, {"a": 1000}))
    board.merge_claims({"a": Claim(proofs[1], "signed")})
    intake.step(0)
    assert transport.received == proofs[:1]
    go_on.set()
    for _ in range(1000):
        intake.step(0.01)
        if len(transport.received) > 1:
            break
    assert transport.received == proofs
    assert (intake._store.parts / "a").is_file(), "it is fixed where it is"
    intake.close()


def test_the_head_takes_what_it_fetched_itself_after_a_member_stated_the_same(tmp_path: Path) -> None:
    """What it began to receive meanwhile comes from nobody."""
    store = Store(tmp_path)
    (tmp_path / "a").write_bytes(os.urandom(1000))
    proof = hash_file(tmp_path / "a", with_sha256=True)
    (tmp_path / "a").rename(tmp_path / "b")
    board, transport = Board(0, 3, KEY), FakeTransport()
    intake = Intake(board, store, transport, FileNeeds(0, 3), lambda _name: False)  # type: ignore[arg-type]
    board.describe(Overview(1, {}, {"a": 1000}, sha256={"a": proof.sha256 or ""}))
    board.give([[], ["a"], []])
    board.merge_claims({"a": Claim(proof)})
    intake.step(0)
    assert transport.received == [proof]
    board.give([["a"], [], []])
    assert not board.claims(), "whoever states it does not fetch it any more"
    (tmp_path / "b").rename(tmp_path / "a")
    store.proofs.put("a", proof)
    board.announce({"a": proof})
    intake.step(0)
    assert transport.offered == ["a"]
    assert board.members[0].have == {"a"}
    intake.close()


@pytest.mark.parametrize(("known", "named"), [(True, True), (False, True), (False, False)])
def test_what_a_member_states_moves_and_writes_to_no_file_that_is_here(
    tmp_path: Path, known: bool, named: bool
) -> None:
    """It may be converted now, or an engine may have it mapped. `named`: no run ended while it was named."""
    store = Store(tmp_path)
    (tmp_path / "a").write_bytes(os.urandom(1000))
    sha256 = hash_file(tmp_path / "a", with_sha256=True).sha256 or ""
    proof = hash_file(tmp_path / "a")
    store.proofs.put("a", proof)
    if not named:
        store.parts.mkdir()
        os.link(tmp_path / "a", store.parts / "a")
    board, transport = Board(2, 3, KEY), FakeTransport()
    intake = Intake(board, store, transport, FileNeeds(2, 3), lambda _name: False)  # type: ignore[arg-type]
    board.describe(Overview(1, {}, {"a": 1000}, {"a": proof.xxh3} if known else {}, {"a": sha256}))
    board.merge_members({0: Member(beat=1 << 61, given=(frozenset(), frozenset("a")))})
    board.merge_claims({"a": Claim(FileHash(1000, proof.xxh3, sha256, bytes(32)))})
    intake.step(0)
    assert bool(transport.received) != known
    if transport.received:
        (store.parts / "a").write_bytes(bytes(1000))
    assert hash_file(tmp_path / "a") == proof
    if known:
        assert "a" in intake.here and not board.claims()
        board.merge_claims({"a": Claim(FileHash(1000, proof.xxh3, sha256, proof.pieces))})
        intake.step(0)
        assert transport.offered == ["a"], "what is here, with the sha256 that the source lists"
    intake.close()


def test_another_file_with_the_xxh3_of_the_signed_one_is_received_again(tmp_path: Path) -> None:
    """As an earlier version noted what a member sent, or as a mirror made it for an earlier revision."""
    store = Store(tmp_path)
    (tmp_path / "a").write_bytes(os.urandom(1000))
    proof = hash_file(tmp_path / "a")
    (tmp_path / "a").write_bytes(os.urandom(1000))
    store.proofs.put("a", replace(hash_file(tmp_path / "a"), xxh3=proof.xxh3))
    board, transport = Board(1, 2, KEY), FakeTransport()
    intake = Intake(board, store, transport, FileNeeds(1, 2), lambda _name: False)  # type: ignore[arg-type]
    board.describe(Overview(1, {}, {"a": 1000}))
    board.merge_claims({"a": Claim(proof, "signed")})
    intake.step(0)
    assert transport.received == [proof] and not transport.offered
    intake.close()
