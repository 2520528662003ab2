"""One libtorrent session and the torrents that go through it, one after another."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

import libtorrent as lt

from headfirst.errors import NotReadyError
from headfirst.weights.swarm_settings import admit, make_session

_LISTEN_LIMIT = 10.0  # seconds
_ENCRYPTED = 1  # a flag of peer exchange messages: this peer answers encrypted handshakes
_CHECKING_AT_A_TIME = 2
_ALONE = (
    lt.torrent_flags.disable_dht
    | lt.torrent_flags.disable_lsd
    | lt.torrent_flags.disable_pex
    | lt.torrent_flags.apply_ip_filter
    | lt.torrent_flags.update_subscribe
    | lt.torrent_flags.duplicate_is_error
)
_IN_ORDER = lt.torrent_flags.sequential_download


@dataclass(frozen=True)
class Finished:
    """The file `name` is whole, proven piece by piece, and readable by everybody (not yet synced to disk)."""

    name: str


@dataclass(frozen=True)
class Failed:
    """`name` cannot go on because of `why`, until it is received or seeded again."""

    name: str
    why: str


Event = Finished | Failed


@dataclass(frozen=True)
class Traffic:
    """Bytes of payload since the start of the session, and bytes a second of the last second.

    `wasted` came twice or was wrong.
    """

    sent: int = 0
    received: int = 0
    wasted: int = 0
    send_rate: float = 0.0
    receive_rate: float = 0.0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.sent + other.sent,
            self.received + other.received,
            self.wasted + other.wasted,
            self.send_rate + other.send_rate,
            self.receive_rate + other.receive_rate,
        )


class _Stage(Enum):
    QUEUED = auto()  # something is there already; its turn to be checked has not come
    CHECKING = auto()
    WAITING = auto()  # connected; asks for nothing yet
    RECEIVING = auto()
    FLUSHING = auto()  # all pieces proven, the last of them not yet written
    WHOLE = auto()
    FAILED = auto()  # keeps its place in the window: where one cannot be written the next cannot either


@dataclass
class _Item:
    name: str
    info: lt.torrent_info
    folder: Path
    stage: _Stage
    handle: lt.torrent_handle | None = None
    verified: int = 0

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.info.files().file_size(0)

    def ask(self) -> None:
        """Leave the mode in which it is connected but asks for nothing."""
        self.stage = _Stage.RECEIVING
        if self.handle:
            self.handle.unset_flags(lt.torrent_flags.upload_mode)


class Lane:
    """Not safe to use from several threads at once."""

    def __init__(self, address: str, port: int, peers: Sequence[str], window: int, alert_fd: int) -> None:
        self._address = address
        self._port = port
        self._peers = peers
        self._window = window
        self._items: dict[str, _Item] = {}
        self._by_hash: dict[lt.sha256_hash, _Item] = {}
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
        self.forget(name)
        item = self._keep(name, torrent, folder, _Stage.WHOLE)
        item.verified = item.size
        self._add(item, lt.torrent_flags.seed_mode)

    def receive(self, name: str, torrent: bytes, folder: Path) -> None:
        """Fetch folder/name, keeping what is right of what is there."""
        self.forget(name)
        item = self._keep(name, torrent, folder, _Stage.QUEUED)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if not (folder / name).exists():
            self._check(item)
        self._move_up()

    def forget(self, name: str) -> None:
        """Neither fetch nor offer `name` any more."""
        item = self._items.pop(name, None)
        if item is None:
            return
        del self._by_hash[item.info.info_hashes().v2]
        if item.handle:
            self._session.remove_torrent(item.handle)
        self._move_up()

    def link(self, upstream: str | None) -> None:
        """Fetch from `upstream` from now on; the connections to the one before are cut."""
        if upstream == self._upstream:
            return
        if self._upstream:
            self._session.set_ip_filter(admit(self._peers, but=[self._upstream]))
            self._session.set_ip_filter(admit(self._peers))
        self._upstream = upstream
        for item in self._items.values():
            self._connect(item)

    def sample(self) -> None:
        """Ask the session for new figures; they come with a later `take_alerts()`."""
        self._session.post_torrent_updates(0)
        self._session.post_session_stats()

    def close(self) -> None:
        """Stop at once; what is not written yet is written by libtorrent in the background."""
        self._session.pause()
        self._items.clear()
        self._by_hash.clear()
        del self._session

    def take_alerts(self) -> Iterator[Event]:
        """What happened since the last call; moves torrents on."""
        for alert in self._session.pop_alerts():
            if isinstance(alert, lt.state_update_alert):
                self._take_progress(alert.status)
            elif isinstance(alert, lt.session_stats_alert):
                self._take_stats(alert.values)
            elif isinstance(alert, lt.torrent_alert) and alert.handle.is_valid():
                item = self._by_hash.get(alert.handle.info_hashes().v2)
                if item and item.handle == alert.handle:
                    yield from self._take_alert(item, alert)
        self._move_up()

    def _take_alert(self, item: _Item, alert: lt.torrent_alert) -> Iterator[Event]:
        match alert:
            case lt.torrent_checked_alert() if item.stage is _Stage.CHECKING:
                item.stage = _Stage.WAITING
                self._connect(item)
            case lt.torrent_finished_alert() if item.stage is not _Stage.WHOLE:
                item.stage = _Stage.FLUSHING
                alert.handle.flush_cache()
            case lt.cache_flushed_alert() if item.stage is _Stage.FLUSHING:
                item.stage = _Stage.WHOLE
                item.verified = item.size
                yield Finished(item.name)
            case lt.file_error_alert() | lt.torrent_error_alert():
                yield from self._fail(item, alert.error.message())
            case lt.peer_ban_alert():
                yield from self._fail(item, f"{alert.ip[0]} sends other bytes than this file's")

    def _fail(self, item: _Item, why: str) -> Iterator[Event]:
        if item.stage is not _Stage.FAILED:
            item.stage = _Stage.FAILED
            yield Failed(item.name, why)

    def _take_progress(self, statuses: Iterable[lt.torrent_status]) -> None:
        for status in statuses:
            item = self._by_hash.get(status.info_hashes.v2)
            if item and item.stage is not _Stage.WHOLE:
                item.verified = min(status.num_pieces * item.info.piece_length(), item.size)

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

    def _keep(self, name: str, torrent: bytes, folder: Path, stage: _Stage) -> _Item:
        item = _Item(name, lt.torrent_info(torrent), folder, stage)
        self._items[name] = self._by_hash[item.info.info_hashes().v2] = item
        return item

    def _check(self, item: _Item) -> None:
        item.stage = _Stage.CHECKING
        self._add(item, _IN_ORDER | lt.torrent_flags.upload_mode)

    def _add(self, item: _Item, flags: int) -> None:
        parameters = lt.add_torrent_params()
        parameters.ti = item.info
        parameters.save_path = str((item.folder / item.name).parent)
        parameters.flags = _ALONE | flags
        item.handle = self._session.add_torrent(parameters)

    def _move_up(self) -> None:
        """Let the first torrents be checked and the first of the checked ones ask for their pieces."""
        items = self._items.values()
        checking = sum(item.stage is _Stage.CHECKING for item in items)
        active = sum(item.stage in (_Stage.RECEIVING, _Stage.FAILED) for item in items)
        for item in items:
            if item.stage is _Stage.QUEUED and checking < _CHECKING_AT_A_TIME:
                checking += 1
                self._check(item)
            elif item.stage is _Stage.WAITING and active < self._window:
                active += 1
                item.ask()
                self._connect(item)

    def _connect(self, item: _Item) -> None:
        if self._upstream and item.handle and item.stage in (_Stage.WAITING, _Stage.RECEIVING):
            item.handle.connect_peer((self._upstream, self._port), 0, _ENCRYPTED)

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
