"""One node's part in a transfer: every file is fetched or received, passed on, and converted as it comes.

The origin, member 0, brings the files; each other member receives them from the one before it while that one
still receives. A run can be stopped at any moment: what is whole stays, and the next run goes on from there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from headfirst.weights.board import Board, Overview
from headfirst.weights.chain import PATIENCE_S, Chain
from headfirst.weights.conversion import Conversion
from headfirst.weights.conversion_queue import ConversionQueue
from headfirst.weights.exchange import Listener
from headfirst.weights.files import claim
from headfirst.weights.intake import Intake
from headfirst.weights.manifest import Manifest
from headfirst.weights.origin import Bringing, Origin
from headfirst.weights.outlook import Outlook
from headfirst.weights.space import SHARDS_IN_FLIGHT, require_node_space
from headfirst.weights.stages import Stages
from headfirst.weights.store import Store
from headfirst.weights.swarm import Swarm, Traffic

_TICK_S = 0.1
_FAREWELL_S = 1.0
"""How long a node that has no more to do still answers, so that its neighbours hear why."""
_SILENCE_S = 60.0
"""Those that are done do not wait for a member that said nothing for so long."""


@dataclass(frozen=True)
class Transfer:
    """What all members agree on. `members` are their addresses on the data network, the origin first.

    They listen on `port`, and with libtorrent on the `sessions` ports after it.
    """

    members: Sequence[str]
    index: int
    port: int
    token: str
    sessions: int = 1
    patience_s: float = PATIENCE_S


@dataclass(frozen=True)
class Outcome:
    """The manifest of what is to be served, whether anything was brought or converted, and what that sent."""

    manifest: Manifest
    changed: bool
    traffic: Traffic


class Pipeline:
    """Brings a checkpoint into `folder`, and its BF16 form into the target of `conversion`, if one is given.

    Without `keep_source` each shard that is converted here and whole on all members is removed.
    """

    def __init__(
        self,
        transfer: Transfer,
        folder: Path,
        *,
        origin: Origin | None = None,
        conversion: Conversion | None = None,
        keep_source: bool = True,
    ) -> None:
        if not (origin and origin.in_place):
            claim(folder)
        self._transfer = transfer
        self._origin = origin
        self._conversion = conversion
        self._keep_source = keep_source or conversion is None or bool(origin and origin.in_place)
        self._board = Board(transfer.index, len(transfer.members))
        self._store = Store(folder)
        self._queue = (
            ConversionQueue(conversion, min(SHARDS_IN_FLIGHT, os.cpu_count() or 1)) if conversion else None
        )
        self._stages = Stages(self._board, converts=conversion is not None)
        self._outlook = Outlook(self._board, transfer.patience_s)
        self._epoch = 0
        self._dropped: set[str] = set()

    def run(self) -> Outcome:
        """Take part until this node is done and nobody needs it any more."""
        with ExitStack() as stack:
            swarm = self._make_swarm(stack)
            self._intake = Intake(self._board, self._store, swarm, self._transfer.token, self._is_spent)
            stack.callback(self._intake.close)
            if self._queue:
                stack.callback(self._queue.close)
            stack.enter_context(self._stages)
            try:
                chain = self._join(stack, swarm) if swarm else None
                bringing = stack.enter_context(Bringing(self._origin, self._board, self._store))
                manifest, changed = self._work(chain, bringing)
                while not self._stay_for_others():
                    manifest, news = self._work(chain, bringing)
                    changed |= news
                traffic = swarm.traffic() if swarm else Traffic()
            except Exception as error:
                self._say_why(error)
                raise
        self._store.tidy(None if self._origin else self._overview.sizes.keys())
        return Outcome(manifest, changed, traffic)

    def _work(self, chain: Chain | None, bringing: Bringing) -> tuple[Manifest, bool]:
        """Do all that there is to do; the manifest of what is to be served, and whether that is news."""
        while not self._has_all(bringing):
            self._step(chain, bringing)
        self._say_how_far()
        manifest, changed = self._complete()
        with self._board.changed:
            self._board.say(done=self._is_current)
        return manifest, changed

    @property
    def _is_current(self) -> bool:
        """Whether the origin has said nothing newer than what this node works at."""
        return self._overview.epoch == self._epoch

    @property
    def _overview(self) -> Overview:
        return self._board.overview or Overview(0, {}, {})

    def _make_swarm(self, stack: ExitStack) -> Swarm | None:
        transfer = self._transfer
        if len(transfer.members) == 1:
            return None
        own = transfer.members[transfer.index]
        swarm = Swarm(own, transfer.port + 1, transfer.members, transfer.sessions)
        stack.callback(swarm.close)
        return swarm

    def _join(self, stack: ExitStack, swarm: Swarm) -> Chain:
        board, transfer = self._board, self._transfer
        own = transfer.members[transfer.index]
        stack.enter_context(Listener(board, own, transfer.port, transfer.members, transfer.token))
        return stack.enter_context(
            Chain(board, transfer.members, transfer.port, transfer.token, swarm.link, transfer.patience_s)
        )

    def _step(self, chain: Chain | None, bringing: Bringing) -> None:
        """Do what can be done now."""
        if bringing.failure:
            raise bringing.failure
        if not self._is_current:
            self._begin_anew()
        self._intake.step(_TICK_S)
        sizes = self._overview.sizes
        if chain and not self._origin:
            lacking = sizes.keys() - self._intake.here
            self._outlook.check(lacking, self._intake.bytes_here(), chain.failure)
        if self._conversion and self._queue and self._conversion.plan(sizes, self._intake.here):
            self._queue.step(self._intake.here, self._intake.hashes())
            self._drop_spent()
        self._say_how_far()

    def _say_how_far(self) -> None:
        sizes, converted = self._overview.sizes, 0
        if self._conversion and self._queue:
            as_it_is = self._intake.here - self._conversion.outputs
            converted = self._queue.bytes_converted(sizes) + sum(sizes.get(name, 0) for name in as_it_is)
        here = max(self._intake.bytes_here(), self._origin.brought if self._origin else 0)
        self._stages.update(here, converted)

    def _begin_anew(self) -> None:
        """The origin has said what there is, or, started again, says it anew."""
        self._epoch = self._overview.epoch
        self._dropped = set()
        if self._conversion and self._queue:
            self._conversion.planned = False
            self._queue.done.clear()
        if self._origin is None:
            target = self._conversion.target if self._conversion else None
            require_node_space(self._overview.sizes, self._store.folder, target, self._keep_source)

    def _has_all(self, bringing: Bringing) -> bool:
        sizes = self._overview.sizes
        if not self._is_current or not bringing.over or not sizes or not sizes.keys() <= self._intake.here:
            return False
        return self._conversion is None or self._queue is None or self._queue.done >= self._conversion.outputs

    def _is_spent(self, name: str) -> bool:
        """Whether `name` was here, was converted with all that need it, and is gone since."""
        conversion = self._conversion
        if self._keep_source or conversion is None or (self._store.folder / name).exists():
            return False
        if not name.endswith(".safetensors") or not conversion.plan(self._overview.sizes, self._intake.here):
            return False
        hashes = self._intake.hashes()
        return all(conversion.is_done(user, hashes) for user in conversion.users(name))

    def _drop_spent(self) -> None:
        if self._keep_source or self._conversion is None or self._queue is None:
            return
        self._dropped &= self._intake.here  # what is passed on once more is dropped once more
        shards = {name for name in self._intake.here - self._dropped if name.endswith(".safetensors")}
        for name in shards:
            if self._conversion.users(name) <= self._queue.done and self._board.everybody_has(name):
                self._intake.forget(name)
                self._store.drop(name)
                self._dropped.add(name)

    def _complete(self) -> tuple[Manifest, bool]:
        records = {name: self._intake.record(name) for name in self._overview.sizes}
        manifest = Manifest(records, self._overview.made_from)
        changed = self._store.complete(manifest, kept=self._keep_source)
        if self._conversion is None:
            return manifest, changed or self._intake.received
        converted, fresh = self._conversion.finish(manifest)
        return converted, changed or fresh or self._intake.received

    def _stay_for_others(self) -> bool:
        """Offer what is here until all members that still work are done; False where there is more to do."""
        since = time.monotonic()
        while any(self._may_need_us(index, time.monotonic() - since) for index in self._others):
            if not self._is_current:
                return False
            self._intake.step(_TICK_S)
            self._drop_spent()
            self._say_how_far()  # it is alive
        if self._others:
            time.sleep(_FAREWELL_S)
        return True

    @property
    def _others(self) -> list[int]:
        return [index for index in range(len(self._transfer.members)) if index != self._transfer.index]

    def _may_need_us(self, index: int, waited: float) -> bool:
        member = self._board.member(index)
        silent = self._board.silent_for(index)
        return not (member.done or member.error or (waited if silent is None else silent) > _SILENCE_S)

    def _say_why(self, error: Exception) -> None:
        if self._origin and self._board.overview is None:  # news are taken only together with an overview
            self._board.describe(Overview(time.time_ns(), {}, {}))
        self._board.say(error=str(error))
        if self._others:
            time.sleep(_FAREWELL_S)
