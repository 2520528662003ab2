"""One node's part in a transfer: every file is fetched or received, passed on, and converted as it comes.

The origin, member 0, brings the files; each other member receives them from the one before it while that one
still receives. A run can be stopped at any moment: what is whole stays, and the next run goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Container, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from headfirst.node.weights.convert.conversion import Conversion
from headfirst.node.weights.fetch.fetching import FetchRequest
from headfirst.node.weights.fetch_origin import FetchHelper
from headfirst.node.weights.files import claim, disk_bytes, require_transfer_space
from headfirst.node.weights.intake import Intake
from headfirst.node.weights.layers import FileNeeds
from headfirst.node.weights.origin import Bringing, Origin
from headfirst.node.weights.outlook import Outlook, Stages
from headfirst.node.weights.proof.checkpoint_check import INDEX, check_checkpoint
from headfirst.node.weights.proof.manifest import LAYERS, Manifest
from headfirst.node.weights.store import Store
from headfirst.node.weights.transfer.board import Board, Overview
from headfirst.node.weights.transfer.transport import Traffic, Transfer, Transport

_TICK_S = 0.1
_SILENCE_S = 60.0
"""Seconds without a report after which a node that is done does not wait for a member."""
_START_S = 10.0  # hosts of one run start within this time


@dataclass(frozen=True)
class Outcome:
    """The manifest of what is to be served, whether anything was brought or converted, and the traffic."""

    manifest: Manifest
    changed: bool
    traffic: Traffic


class Pipeline:
    """Brings a checkpoint into `folder` and, with `conversion`, its BF16 form into the target of that.

    `origin`: brings the files; member 0 has one, the others have None. `needs`: which files come to which
    member, by default all to all. `helps`: the model of which a member that is not the origin fetches its
    share, None for no share. Without `keep_source`, a shard is removed once it is converted here and whole on
    all members. Raises InputError and NotReadyError as `files.claim` does.
    """

    def __init__(
        self,
        transfer: Transfer,
        folder: Path,
        *,
        origin: Origin | None = None,
        needs: FileNeeds | None = None,
        helps: FetchRequest | None = None,
        conversion: Conversion | None = None,
        keep_source: bool = True,
    ) -> None:
        if not (origin and origin.in_place):
            claim(folder)
        self._transfer = transfer
        self._origin = origin
        self._helps = helps
        self._conversion = conversion
        self._keep_source = keep_source or conversion is None or bool(origin and origin.in_place)
        self._needs = needs or FileNeeds(transfer.index, len(transfer.members))
        self._board = Board(transfer.index, len(transfer.members), transfer.key, self._needs.members)
        self._store = Store(folder)
        self._stages = Stages(self._board, converts=conversion is not None)
        self._outlook = Outlook(self._board, transfer.patience_s)
        self._helper: FetchHelper | None = None
        self._epoch = 0
        self._has_room = False
        self._dropped: set[str] = set()
        self._needing: list[int] = []

    def run(self) -> Outcome:
        """Take part until this node is done and nobody needs it any more."""
        self._restore_index()
        with ExitStack() as stack:
            self._transport = stack.enter_context(Transport(self._transfer, self._board, self._holders))
            self._intake = Intake(self._board, self._store, self._transport, self._needs, self._is_spent)
            stack.callback(self._intake.close)
            if self._conversion:
                stack.callback(self._conversion.close)
            stack.enter_context(self._stages)
            try:
                bringing = stack.enter_context(Bringing(self._origin, self._board, self._store))
                if self._helps:
                    self._helper = FetchHelper(self._helps, self._board, self._store)
                    stack.enter_context(self._helper)
                manifest, changed = self._work(bringing)
                while not self._stay_for_others():
                    manifest, news = self._work(bringing)
                    changed |= news
                traffic = self._transport.traffic
            except Exception as error:
                self._report_failure(error)
                raise
        self._store.tidy(self._kept_names)
        return Outcome(manifest, changed, traffic)

    def _work(self, bringing: Bringing) -> tuple[Manifest, bool]:
        """Work until this node has all; the manifest of what is to be served, and whether it is new."""
        while not self._has_all(bringing):
            self._step(bringing)
        self._report_progress()
        manifest, changed = self._complete()
        with self._board.changed:
            self._board.report(done=self._is_current)
        return manifest, changed

    @property
    def _is_current(self) -> bool:
        """Whether this node works at the newest overview of the origin."""
        return self._overview.epoch == self._epoch

    @property
    def _overview(self) -> Overview:
        return self._board.overview or Overview(0, {}, {})

    @property
    def _needed(self) -> Mapping[str, int]:
        """Bytes of the files that this node needs, by name."""
        return self._needs.needed(self._overview.sizes)

    @property
    def _kept_names(self) -> Collection[str] | None:
        """The files that stay: what this node needs, and what others lack. None: all that are there."""
        if self._origin and (self._needs.keeps_all or not self._needs.divided):
            return None
        sizes = self._overview.sizes
        return {name for name in sizes if self._needs.is_needed(name) or not self._board.everybody_has(name)}

    def _holders(self, name: str) -> Container[int]:
        """The members that will have a file."""
        return self._needs.members(name) | {self._board.bringer(name)}

    def _step(self, bringing: Bringing) -> None:
        """One turn: take files in, convert, report."""
        if bringing.failure:
            raise bringing.failure
        if not self._is_current:
            self._begin_anew()
        self._require_room()
        self._intake.step(_TICK_S)
        if bringing.over:  # the origin may wait for what another member lends it
            self._outlook.check(self._lacking, self._intake.bytes_here(), self._transport.chain.failure)
        if self._conversion and self._plan_conversion():
            self._conversion.step(self._intake.here, self._intake.hashes())
            self._drop_spent()
        self._report_progress()

    def _report_progress(self) -> None:
        sizes, converted, here = self._needed, 0, self._intake.bytes_here()
        if self._conversion:
            as_it_is = self._intake.here - self._conversion.outputs
            converted = self._conversion.bytes_converted(sizes) + sum(sizes.get(name, 0) for name in as_it_is)
        if self._needs.divided:
            brought = sum(sizes.get(name, 0) for name in self._intake.hashes())
        else:
            here = max(here, self._origin.brought if self._origin else 0)
            brought = here if self._origin else self._board.members[0].received
        self._stages.update(sizes, here, converted, brought, self._remarks)

    @property
    def _remarks(self) -> list[str]:
        """Remarks beside the progress: of the source, on members passed over."""
        remarks = [source.note for source in (self._origin, self._helper) if source and source.note]
        remarks += [f"passed over: {why}" for why in list(self._transport.chain.passed_over.values())]
        if self._needing:
            remarks.append(
                f"waits for {', '.join(self._transfer.members[index][0] for index in self._needing)}"
            )
        return remarks

    def _begin_anew(self) -> None:
        """Begin with the newest overview, which the origin sends at each of its starts."""
        self._epoch = self._overview.epoch
        self._dropped = set()
        self._has_room = False
        self._restore_index()
        if self._conversion:
            self._conversion.begin_anew()

    def _restore_index(self) -> None:
        if not self._needs.keeps_all:
            self._store.restore_index()

    def _require_room(self) -> None:
        """NotReadyError where the disk is too small for what this node needs; the origin checks its own."""
        if self._origin is None and self._needs.known and not self._has_room:
            target = self._conversion.target if self._conversion else None
            needed, folder = self._needed, self._store.folder
            missing = max(0, sum(needed.values()) - disk_bytes(folder, needed))
            require_transfer_space("receive", needed, missing, folder, target, self._keep_source)
            self._has_room = True

    @property
    def _lacking(self) -> AbstractSet[str]:
        """The files that must still come, and those of which the hash must still come."""
        unknown = (
            self._overview.sizes.keys() - self._intake.hashes().keys() if self._needs.divided else frozenset()
        )
        return (self._needed.keys() - self._intake.here) | unknown

    def _plan_conversion(self) -> bool:
        """Whether it is decided what this node converts."""
        if self._conversion is None or not self._needs.known:
            return False
        return self._conversion.plan(self._needed, self._intake.here, self._needs.serves)

    def _has_all(self, bringing: Bringing) -> bool:
        if not self._is_current or not bringing.over or not self._overview.sizes or self._lacking:
            return False
        return self._conversion is None or self._conversion.done >= self._conversion.outputs

    def _is_spent(self, name: str) -> bool:
        """Whether all shards made from `name` are converted here, and it was removed since."""
        conversion = self._conversion
        if self._keep_source or conversion is None or (self._store.folder / name).exists():
            return False
        if not name.endswith(".safetensors") or not self._plan_conversion():
            return False
        hashes = self._intake.hashes()
        return all(conversion.is_done(user, hashes) for user in conversion.users(name))

    def _drop_spent(self) -> None:
        if self._keep_source or self._conversion is None:
            return
        self._dropped &= self._intake.here  # what is passed on once more is dropped once more
        shards = {name for name in self._intake.here - self._dropped if name.endswith(".safetensors")}
        for name in shards & self._needed.keys():
            if self._conversion.users(name) <= self._conversion.done and self._board.everybody_has(name):
                self._transport.forget(name)
                self._store.drop(name)
                self._dropped.add(name)

    def _complete(self) -> tuple[Manifest, bool]:
        records = {name: self._intake.record(name) for name in self._overview.sizes}
        whole = manifest = Manifest(records, self._overview.made_from)
        layers = self._needs.layers_here(self._overview.sizes)
        if layers and self._keep_source and not self._needs.keeps_all:
            manifest = self._store.divide(whole, self._needed.keys(), layers)
            self._transport.move(INDEX, self._store.path(INDEX))
        elif self._origin and self._conversion is None:
            check_checkpoint(self._store.folder)
        changed = self._store.complete(manifest, kept=self._keep_source)
        if self._conversion is None:
            return manifest, changed or self._intake.received
        converted, fresh = self._conversion.finish(whole, {LAYERS: layers} if layers else {})
        return converted, changed or fresh or self._intake.received

    def _stay_for_others(self) -> bool:
        """Offer the files until all members that still work are done; False: a newer overview came."""
        since = time.monotonic()
        while True:
            while self._still_needing(since):
                if not self._is_current:
                    self._needing = []
                    return False
                self._intake.step(_TICK_S)
                self._drop_spent()
                self._report_progress()  # it is alive
            self._transport.chain.farewell()
            if not self._still_needing(since):  # by a member that was started again meanwhile
                return True

    def _still_needing(self, since: float) -> list[int]:
        """The members that may need this one, which is done since then."""
        waited = time.monotonic() - since
        self._needing = [index for index in self._others if self._may_need_us(index, waited)]
        return self._needing

    @property
    def _others(self) -> list[int]:
        return [index for index in range(len(self._transfer.members)) if index != self._transfer.index]

    def _may_need_us(self, index: int, waited: float) -> bool:
        member = self._board.members[index]
        silent = self._board.silent_for(index)
        return not (member.done or member.error or (waited if silent is None else silent) > _SILENCE_S)

    def _report_failure(self, error: Exception) -> None:
        if self._origin and self._board.overview is None:  # news are taken only together with an overview
            self._board.describe(Overview(time.time_ns(), {}, {}))
        self._board.report(error=str(error))
        since = time.monotonic()
        # One that starts when this one has ended would wait for it in vain.
        while self._origin and time.monotonic() - since < _START_S and not self._all_have_begun:
            time.sleep(_TICK_S)
        self._transport.chain.farewell()

    @property
    def _all_have_begun(self) -> bool:
        return all(self._board.silent_for(index) is not None for index in self._others)
