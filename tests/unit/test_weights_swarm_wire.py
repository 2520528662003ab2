"""What somebody on the wire between two members sees: neither the secret info-hash nor anything to replay."""

from __future__ import annotations

import hashlib
import socket
from contextlib import suppress
from pathlib import Path

import libtorrent as lt
import pytest
from headfirst.weights import swarm_settings
from headfirst.weights.hashing import PIECE
from swarm_hosts import PORT, MakeSwarm, Source, await_names, hosts, settled_traffic, start
from wire_tap import WireTap, tapped

__all__ = ["hosts", "start"]  # fixtures


def secrets_of(torrent: bytes) -> dict[str, bytes]:
    """What admits to a torrent, and what a handshake makes of it without a fresh key."""
    hashes = lt.torrent_info(torrent).info_hashes()
    whole = bytes(hashes.v2.to_bytes())
    short = whole[:20]
    return {
        "info-hash": whole,
        "info-hash of the handshake": short,
        "info-hash in hex": short.hex().encode(),
        "hash of the info-hash": hashlib.sha1(b"req2" + short).digest(),
        "name of the protocol": b"BitTorrent protocol",
    }


def transfer(
    hosts: list[str], start: MakeSwarm, folder: Path, seen: list[bytes]
) -> tuple[WireTap, Source, object]:
    """One file from the first host to the second, through a tap on the third; the head still offers it."""
    source = Source(folder / "head", file=3 * PIECE)
    head, node = start(0), start(1)
    source.seed(head)
    with tapped(hosts[2], hosts[0], PORT) as tap:
        node.link(hosts[2])
        source.receive(node, folder / "node")
        await_names(node, set(source.torrents))
        assert source.same(folder / "node")
        node.link(None)
        seen += [bytes(data) for data in tap.asked]
    return tap, source, head


def test_the_wire_shows_neither_the_info_hash_nor_the_payload(
    hosts: list[str], start: MakeSwarm, tmp_path: Path
) -> None:
    tap, source, _ = transfer(hosts, start, tmp_path, [])
    assert len(tap.all) > 3 * PIECE, "all of it went through the tap"
    for what, secret in secrets_of(source.torrents["sub/file"]).items():
        assert secret not in tap.all, what
    assert (source.folder / "sub/file").read_bytes()[:64] not in tap.all


def test_the_test_finds_an_info_hash_where_it_is_sent(
    hosts: list[str], start: MakeSwarm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the encryption of the handshake's first part only, as it was before."""
    plain = {"allowed_enc_level": int(lt.enc_level.pe_plaintext), "prefer_rc4": False}
    monkeypatch.setattr(swarm_settings, "_SECRET_HANDSHAKE", swarm_settings._SECRET_HANDSHAKE | plain)
    tap, source, _ = transfer(hosts, start, tmp_path, [])
    assert secrets_of(source.torrents["sub/file"])["info-hash of the handshake"] in tap.all


def test_recorded_bytes_admit_nobody(hosts: list[str], start: MakeSwarm, tmp_path: Path) -> None:
    asked: list[bytes] = []
    _, _, head = transfer(hosts, start, tmp_path, asked)
    before = settled_traffic(head).sent  # type: ignore[arg-type]
    assert before >= 3 * PIECE
    for recorded in asked:
        answered = bytearray()
        with socket.create_connection((hosts[0], PORT), source_address=(hosts[2], 0), timeout=3) as wire:
            with suppress(OSError):  # it is cut off, or nothing comes
                wire.sendall(recorded)
                while data := wire.recv(65536):
                    answered += data
            assert len(answered) < PIECE
    assert settled_traffic(head).sent == before  # type: ignore[arg-type]


def test_a_peer_that_speaks_in_clear_is_not_admitted(
    hosts: list[str], start: MakeSwarm, tmp_path: Path
) -> None:
    """Even with the info-hash: no member can be made to send it in clear."""
    source = Source(tmp_path / "head", file=PIECE)
    head = start(0)
    source.seed(head)
    short = secrets_of(source.torrents["sub/file"])["info-hash of the handshake"]
    hello = b"\x13BitTorrent protocol" + bytes(8) + short + b"-XX0000-" + b"0" * 12
    with socket.create_connection((hosts[0], PORT), source_address=(hosts[2], 0), timeout=3) as wire:
        wire.sendall(hello)
        answered = b""
        with suppress(OSError):
            answered = wire.recv(65536)
    assert b"BitTorrent" not in answered
    assert settled_traffic(head).sent == 0
