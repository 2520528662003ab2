"""What a swarm tells of itself."""

from __future__ import annotations

from dataclasses import dataclass


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
    """Bytes of payload since the start of the session, and bytes a second of the last half second.

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
