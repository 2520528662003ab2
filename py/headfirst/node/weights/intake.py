"""Processes what the board announces: finds what is there, has the rest received, and gives it its name.

What only other members need is offered to them where it is here, and removed once they all have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from headfirst.common.errors import NotReadyError
from headfirst.node.weights.layers import FileNeeds
from headfirst.node.weights.proof.hash_cache import FileRecord
from headfirst.node.weights.proof.hashing import FileHash
from headfirst.node.weights.store import Store
from headfirst.node.weights.transfer.board import Board
from headfirst.node.weights.transfer.receiver import Failed, ReceivedFile
from headfirst.node.weights.transfer.transport import Transport

_SETTLING_AT_A_TIME = 4


class Intake:
    """`here` are the files that are whole on this node, and those that were and are `spent` since."""

    def __init__(
        self,
        board: Board,
        store: Store,
        transport: Transport,
        needs: FileNeeds,
        spent: Callable[[str], bool],
    ) -> None:
        self.here: set[str] = set()
        self.received = False
        """Whether anything had to be brought by others."""
        self._board = board
        self._store = store
        self._transport = transport
        self._needs = needs
        self._spent = spent
        self._epoch = 0
        self._taken: dict[str, FileHash] = {}
        self._spent_here: set[str] = set()  # of those taken
        self._passed_on: dict[str, FileHash] = {}  # files that only others need
        self._settling: dict[Future[bool], tuple[ReceivedFile, FileHash]] = {}
        self._settlers = ThreadPoolExecutor(_SETTLING_AT_A_TIME, "settle")

    def step(self, timeout: float) -> None:
        """Take what is new, or comes in `timeout` seconds; NotReadyError where a file cannot come."""
        before = set(self.here), {*self._taken}
        self._look_at_overview()
        settling = {event.name for event, _proof in self._settling.values()}
        proofs = self._board.proofs()
        for name in self._taken.keys() - proofs.keys() - self.here:  # stated by a member, and dropped since
            self._transport.forget(name)
            del self._taken[name]
        for name, proof in proofs.items():
            if name in settling:  # what is being named must not be written to
                continue
            if not self._needs.is_decided(name):
                continue
            if not self._needs.is_needed(name):
                self._pass_on(name, proof)
            elif (
                self._taken.get(name) != proof
                or (name in self._spent_here and self._board.is_wanted_after_us(name))
                or (name not in self.here and self._is_ours(name))
            ):
                self._begin(name, proof)
        for event in self._transport.events(timeout):
            if isinstance(event, Failed):
                self._retry(event)
            else:
                self._settle(event)
        for future in [future for future in self._settling if future.done()]:
            received, proof = self._settling.pop(future)
            if not future.result():
                self._refuse(received.name, proof, received.senders)
            elif self._taken.get(received.name) == proof:
                self.here.add(received.name)
                if self._board.index == 0:  # what another member fetched is proven now: sign it
                    self._board.announce({received.name: proof})
        self._drop_passed_on()
        self._learn()
        if (self.here, set(self._taken)) != before:
            self._board.report(have=frozenset(self.here), wants=frozenset(self._taken.keys() - self.here))

    def hashes(self) -> dict[str, str]:
        """The xxh3 of all files of which it is known."""
        overview = self._board.overview
        hashes = dict(overview.known) if overview else {}
        if self._needs.divided:
            hashes |= {name: proof.xxh3 for name, proof in self._board.proofs().items()}
        return hashes | {name: proof.xxh3 for name, proof in self._taken.items()}

    def record(self, name: str) -> FileRecord:
        """What the manifest of the whole checkpoint is to record of a file."""
        overview = self._board.overview
        if overview and not self._needs.is_needed(name):
            return FileRecord(overview.sizes[name], self.hashes()[name])
        proof = self._taken.get(name) or self._store.proofs.remembered(name)
        record = proof.record if proof else self._store.proofs.records.get(name)
        if record is None:
            raise self._changed(name)
        return record

    def bytes_here(self) -> int:
        """Bytes of whole files and of proven pieces, of what this node needs."""
        overview = self._board.overview
        sizes = self._needs.needed(overview.sizes) if overview else {}
        parts = self._transport.progress() | {name: sizes.get(name, 0) for name in self.here}
        return sum(size for name, size in parts.items() if name in sizes)

    def close(self) -> None:
        """Wait for the files that are being given their names."""
        self._settlers.shutdown(cancel_futures=True)

    def _look_at_overview(self) -> None:
        """What is known of an overview's files before the origin proves them to strangers."""
        overview = self._board.overview
        if overview is None or overview.epoch == self._epoch:
            return
        for name in (self._taken.keys() | self._passed_on.keys()) - overview.sizes.keys():
            self._transport.forget(name)
        self._epoch = overview.epoch
        self._taken = {}
        self._passed_on = {}
        if self._board.index:  # the head's own files are the same for the whole run
            self._needs.forget()
        self._spent_here = set()
        self.here = {
            name
            for name, xxh3 in overview.known.items()
            if self._store.is_whole(name, overview.sizes[name], xxh3)
        }
        # What is spent can only be known with the index at hand.
        self._learn()
        self.here |= {name for name in overview.known if self._needs.is_needed(name) and self._spent(name)}
        self._board.report(have=frozenset(self.here), ready=True)

    def _learn(self) -> None:
        if overview := self._board.overview:
            self._needs.learn(self._store.folder, overview.sizes, self.here)

    def _pass_on(self, name: str, proof: FileHash) -> None:
        """Offer what is here for others only."""
        if self._passed_on.get(name) == proof or self._board.everybody_has(name):
            return
        if proof.size and self._holds(name, proof):
            self._passed_on[name] = proof
            self.here.add(name)
            self._transport.offer(name, proof, self._store.folder / name)

    def _drop_passed_on(self) -> None:
        for name in [name for name in self._passed_on if self._board.everybody_has(name)]:
            del self._passed_on[name]
            self.here.discard(name)
            self._transport.forget(name)
            self._store.drop(name)

    def _begin(self, name: str, proof: FileHash) -> None:
        signed = self._board.is_signed(name, proof)
        if name in self.here and not signed and self._store.proofs.get(name) and not self._holds(name, proof):
            self._board.reject(name, proof)  # the head knows what is here, and a member states something else
            return
        changed = name in self._taken
        self._taken[name] = proof
        self._spent_here.discard(name)
        known = signed or self._store.proofs.remembered(name) == proof
        if known and self._spent(name) and not self._board.is_wanted_after_us(name):
            self._spent_here.add(name)
            self.here.add(name)
            return
        if changed:
            self._transport.forget(name)
        whole = self._holds(name, proof)
        if whole:
            self.here.add(name)
        if proof.size == 0:
            return
        if whole:
            self._transport.offer(name, proof, self._store.path(name))
        elif self._is_ours(name):
            if signed:  # else a member stated it, and this one fetches it now
                raise self._changed(name)
        else:
            self.here.discard(name)
            self.received = True
            self._store.begin(name, repair=signed)
            self._transport.receive(name, proof, self._store.parts / name)

    def _is_ours(self, name: str) -> bool:
        """Whether this is the head, and fetches the file itself."""
        return self._board.index == 0 and not self._board.is_given_away(name)

    def _changed(self, name: str) -> NotReadyError:
        where = str(self._store.folder / name)
        return NotReadyError("this file changed while it was in use", where=where, hint="Run again.")

    def _holds(self, name: str, proof: FileHash) -> bool:
        """Whether `name` is there; what only a member states of it changes nothing that is known here."""
        has = self._store.holds if self._board.is_signed(name, proof) else self._store.has_proven
        return has(name, proof)

    def _settle(self, event: ReceivedFile) -> None:
        name, proof = event.name, self._taken.get(event.name)
        settling = [(received.name, its_proof) for received, its_proof in self._settling.values()]
        if proof and name not in self.here and (name, proof) not in settling:
            self._settling[self._settlers.submit(self._name, name, proof)] = event, proof

    def _retry(self, event: Failed) -> None:
        """Take a file from whoever has it next, where only a member that is asked no more sent it wrongly."""
        proof = self._taken.get(event.name)
        passed_over = self._transport.chain.passed_over
        lost_head = self._board.index > 0 and 0 in passed_over  # who else has it cannot be awaited
        if not event.wrong or proof is None or lost_head:
            raise NotReadyError(
                f"{event.name} cannot be received: {event.why}",
                where=str(self._store.folder),
                hint="Fix that, then run again: it continues with what is there.",
            )
        bringer = self._board.bringer(event.name)
        if self._board.is_signed(event.name, proof) or bringer not in passed_over:
            del self._taken[event.name]  # the next turn asks for it again
        else:
            self._refuse(event.name, proof, [bringer])

    def _refuse(self, name: str, proof: FileHash, senders: Iterable[int]) -> None:
        """Wait for the file from the head, which fetches it now."""
        if self._taken.get(name) != proof:
            return
        fetcher = self._transport.address(self._board.bringer(name))
        why = f"{name} has another sha256 than the source lists: fetched by {fetcher}, received from"
        for sender in sorted(senders):
            self._transport.chain.pass_over(sender, f"{why} {self._transport.address(sender)}")
        self._board.reject(name, proof)

    def _name(self, name: str, proof: FileHash) -> bool:
        """Give what was received its name, while it is offered on; False where it is not what was stated.

        The pieces of a file have the digests that the head signed. What a member stated of a file that it
        fetched is compared, all of it, with the bytes that came and with the sha256 that the head signed.
        """
        if not self._board.is_signed(name, proof) and not self._store.has_sent_bytes(name, proof):
            return False
        self._store.settle(name, proof)
        self._transport.move(name, self._store.folder / name)
        self._store.release(name)
        return True
