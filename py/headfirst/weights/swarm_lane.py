"""One libtorrent session and the torrents that go through it, one after another."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import libtorrent as lt

from headfirst.errors import NotReadyError
from headfirst.weights.swarm_events import Event, Failed, Finished, Traffic
from headfirst.weights.swarm_item import Item, Stage
from headfirst.weights.swarm_settings import admit, make_session

_LISTEN_LIMIT = 10.0  # seconds
_CHECKING_AT_A_TIME = 2
_CONNECTED_AHEAD = 4
_HAS_TURN = (Stage.STARTING, Stage.RECEIVING, Stage.FAILED)


class Lane:
    """Not safe to use from several threads at once."""

    def __init__(self, address: str, port: int, peers: Sequence[str], window: int, alert_fd: int) -> None:
        self._address = address
        self._port = port
        self._peers = peers
        self._window = window
        self._items: dict[str, Item] = {}
        self._by_hash: dict[lt.sha256_hash, Item] = {}
        self._upstream: str | None = None
        self._sample = (time.monotonic(), Traffic())
        self._session = make_session(address, port, peers)
        self._await_listening()
        self._session.set_alert_fd(alert_fd)

    @property
    def traffic(self) -> Traffic:
        """As of the last `sample()`."""
        return self._sample[1]

    def progress(self) -> dict[str, int]:
        """Verified bytes by name, as of the last `sample()`."""
        return {item.name: item.verified for item in self._items.values()}

    def seed(self, name: str, torrent: bytes, folder: Path) -> None:
        """Offer folder/name, which is whole."""
        item = self._keep(name, torrent, folder, Stage.WHOLE)
        item.verified = item.size
        item.add_to(self._session, whole=True)

    def receive(self, name: str, torrent: bytes, folder: Path) -> None:
        """Fetch folder/name, keeping what is right of what is there."""
        item = self._keep(name, torrent, folder, Stage.QUEUED)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            self._check(item)
        self.move_up()

    def forget(self, name: str) -> None:
        """Neither fetch nor offer `name` any more."""
        item = self._items.pop(name, None)
        if item is None:
            return
        del self._by_hash[item.info.info_hashes().v2]
        item.drop_from(self._session)
        self.move_up()

    def link(self, upstream: str | None) -> None:
        """Fetch from `upstream` from now on; the connections to the one before are cut."""
        if upstream == self._upstream:
            return
        if self._upstream:  # shutting it out for a moment is how libtorrent lets go of a peer
            self._session.set_ip_filter(admit(self._peers, but=[self._upstream]))
            self._session.set_ip_filter(admit(self._peers))
        self._upstream = upstream
        for item in self._items.values():
            item.linked_at = None
        self.move_up()

    def sample(self) -> None:
        """Ask the session for new figures; they come with a later `take_alerts()`."""
        self._session.post_torrent_updates(0)
        self._session.post_session_stats()

    def close(self) -> None:
        """Stop; what is not written yet is written by libtorrent in the background."""
        self._session.pause()
        self._items.clear()
        self._by_hash.clear()
        del self._session

    def take_alerts(self) -> Iterator[Event]:
        """What happened since the last call."""
        for alert in self._session.pop_alerts():
            if isinstance(alert, lt.state_update_alert):
                for status in alert.status:
                    if item := self._by_hash.get(status.info_hashes.v2):
                        item.count_pieces(status.num_pieces)
            elif isinstance(alert, lt.session_stats_alert):
                self._take_stats(alert.values)
            elif isinstance(alert, lt.torrent_alert) and alert.handle.is_valid():
                item = self._by_hash.get(alert.handle.info_hashes().v2)
                if item and item.handle == alert.handle:
                    yield from self._take_alert(item, alert)

    def move_up(self) -> bool:
        """Let the first be checked and the first of the checked ones ask; whether any is asking."""
        items = self._items.values()
        for item in items:
            item.look(self.traffic.receive_rate)
        checking = sum(item.stage is Stage.CHECKING for item in items)
        busy = sum(item.stage in _HAS_TURN for item in items)
        ahead = 0
        for item in items:
            if item.stage is Stage.QUEUED and checking < _CHECKING_AT_A_TIME:
                checking += 1
                self._check(item)
            elif item.stage is Stage.WAITING and busy < self._window:
                busy += 1
                item.stage = Stage.STARTING
            ahead += item.stage is Stage.WAITING
            if self._upstream and ahead <= _CONNECTED_AHEAD:
                item.connect(self._upstream, self._port)
        return busy > 0

    def _take_alert(self, item: Item, alert: lt.torrent_alert) -> Iterator[Event]:
        match alert:
            case lt.torrent_checked_alert() if item.stage is Stage.CHECKING:
                item.stage = Stage.WAITING
                item.count_pieces(alert.handle.status(0).num_pieces)
            case lt.torrent_finished_alert() if item.stage is not Stage.WHOLE:
                item.stage = Stage.FLUSHING
                alert.handle.flush_cache()
            case lt.cache_flushed_alert() if item.stage is Stage.FLUSHING:
                item.stage = Stage.WHOLE
                item.verified = item.size
                yield Finished(item.name)
            case lt.file_error_alert() | lt.torrent_error_alert():
                yield from self._fail(item, alert.error.message())
            case lt.hash_failed_alert() if item.stage is Stage.WHOLE:
                yield from self._fail(item, "it was changed on this node's disk")
            case lt.peer_ban_alert():
                yield from self._fail(item, f"{alert.ip[0]} sends other bytes than this file's")

    def _fail(self, item: Item, why: str) -> Iterator[Event]:
        """Give it up: libtorrent would try to write again and again."""
        if item.stage is not Stage.FAILED:
            item.stage = Stage.FAILED
            item.drop_from(self._session)
            yield Failed(item.name, why)

    def _take_stats(self, values: dict[str, int]) -> None:
        then, before = self._sample
        now = time.monotonic()
        sent, received = values["net.sent_payload_bytes"], values["net.recv_payload_bytes"]
        self._sample = (
            now,
            Traffic(
                sent,
                received,
                values["net.recv_redundant_bytes"] + values["net.recv_failed_bytes"],
                (sent - before.sent) / (now - then),
                (received - before.received) / (now - then),
            ),
        )

    def _keep(self, name: str, torrent: bytes, folder: Path, stage: Stage) -> Item:
        self.forget(name)
        item = Item(name, lt.torrent_info(torrent), folder, stage)
        self._items[name] = self._by_hash[item.info.info_hashes().v2] = item
        return item

    def _check(self, item: Item) -> None:
        item.stage = Stage.CHECKING
        item.add_to(self._session, whole=False)

    def _await_listening(self) -> None:
        deadline = time.monotonic() + _LISTEN_LIMIT
        why = "libtorrent does not answer"
        while time.monotonic() < deadline:
            self._session.wait_for_alert(100)
            for alert in self._session.pop_alerts():
                if isinstance(alert, lt.listen_succeeded_alert):
                    return
                if isinstance(alert, lt.listen_failed_alert):
                    why = alert.error.message()
                    deadline = 0.0
        raise NotReadyError(
            f"cannot listen on {self._address} port {self._port}: {why.lower()}",
            hint="Set weights_port to a free port, and address to one of this host's own.",
        )
