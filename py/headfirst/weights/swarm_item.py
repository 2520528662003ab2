"""One file of a lane: its torrent, and how far it is."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

import libtorrent as lt

_LEAD = 512 * 1024  # bytes
_LEAD_SECONDS = 0.04
_LEAD_LIMIT = 2.0  # seconds
_ENDING = 4 * 1024 * 1024  # bytes
_ENDING_SECONDS = 0.2
_AGAIN_SECONDS = 0.1
_ENCRYPTED = 1  # a flag of peer exchange messages: this peer answers encrypted handshakes
_ALONE = (
    lt.torrent_flags.disable_dht
    | lt.torrent_flags.disable_lsd
    | lt.torrent_flags.disable_pex
    | lt.torrent_flags.apply_ip_filter
    | lt.torrent_flags.update_subscribe
    | lt.torrent_flags.duplicate_is_error
)
_SILENT = lt.torrent_flags.upload_mode  # connected, but asking for nothing


class Stage(Enum):
    """The stages of a file, in their order."""

    QUEUED = auto()  # something is there already; its turn to be checked has not come
    CHECKING = auto()
    WAITING = auto()  # connected; its turn has not come
    STARTING = auto()  # its turn, but the others are not far enough ahead
    RECEIVING = auto()
    ENDING = auto()  # so near its end that the next may start
    FLUSHING = auto()  # all pieces proven, the last of them not yet written
    WHOLE = auto()
    FAILED = auto()  # keeps its turn: where one cannot be written the next cannot either


@dataclass
class Item:
    """`verified` in bytes; the rest are times of the monotonic clock."""

    name: str
    info: lt.torrent_info
    folder: Path
    stage: Stage
    handle: lt.torrent_handle | None = None
    verified: int = 0
    linked_at: float | None = None
    offered_since: float | None = None

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.info.layout().file_size(0)

    def add_to(self, session: lt.session, *, whole: bool) -> None:
        """Begin to offer it where it is `whole`, else to check it."""
        how = lt.torrent_flags.seed_mode if whole else lt.torrent_flags.sequential_download | _SILENT
        parameters = lt.add_torrent_params()
        parameters.ti = self.info
        parameters.save_path = str((self.folder / self.name).parent)
        parameters.flags = _ALONE | how
        self.handle = session.add_torrent(parameters)

    def drop_from(self, session: lt.session) -> None:
        """Neither fetch nor offer it."""
        if self.handle:
            session.remove_torrent(self.handle)
            self.handle = None

    def connect(self, address: str, port: int) -> None:
        """Have libtorrent connect to a node, and connect again whenever the connection is lost.

        The node may not have the torrent yet: whose turn it is tries again often.
        """
        if not self.handle or not Stage.WAITING.value <= self.stage.value <= Stage.ENDING.value:
            return
        now = time.monotonic()
        again = self.stage is Stage.STARTING and now - (self.linked_at or now) > _AGAIN_SECONDS
        if self.linked_at is None or (again and not self.handle.get_peer_info()):
            self.linked_at = now
            self.handle.pause()
            self.handle.connect_peer((address, port), 0, _ENCRYPTED)
            self.handle.resume()

    def count_pieces(self, pieces: int) -> None:
        """Take the number of proven pieces."""
        if self.stage is not Stage.WHOLE:
            self.verified = min(pieces * self.info.piece_length(), self.size)

    def look(self, rate: float) -> None:
        """Start to ask when a neighbour is a lead ahead; see when the end is near. `rate` in bytes a second.

        Who has caught up with its neighbour is told "not interested", and libtorrent then keeps the queue of
        requests so short for the rest of the second that the wire is idle. So nobody starts close behind.
        """
        if self.handle and self.stage is Stage.STARTING and self._is_offered(rate):
            self.stage = Stage.RECEIVING
            self.handle.unset_flags(_SILENT)
        elif self.handle and self.stage is Stage.RECEIVING:
            status = self.handle.status(0)
            left = status.total_wanted - status.total_wanted_done
            if left < max(_ENDING, _ENDING_SECONDS * status.download_payload_rate):
                self.stage = Stage.ENDING

    def _is_offered(self, rate: float) -> bool:
        """Whether a neighbour is far enough ahead, or has offered something for long."""
        size = self.info.piece_length()
        lead = max(_LEAD, _LEAD_SECONDS * rate)
        enough = min(self.info.num_pieces(), (self.verified + int(lead)) // size)
        most = max((peer.num_pieces for peer in self.handle.get_peer_info()), default=0) if self.handle else 0
        if most and self.offered_since is None:
            self.offered_since = time.monotonic()
        return most >= enough or (
            self.offered_since is not None and time.monotonic() - self.offered_since > _LEAD_LIMIT
        )
