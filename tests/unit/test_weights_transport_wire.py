"""What somebody on the wire between two members sees, and who can connect: in clear, and with TLS."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from headfirst.node.weights.proof.hashing import PIECE
from headfirst.node.weights.transfer.board import Board, Overview
from headfirst.node.weights.transfer.encryption import _identity, contexts
from headfirst.node.weights.transfer.link import PeerRefused, Unreachable
from transfer_hosts import PORT, TOKEN, Source, Start, hosts, linked, read, serving, start
from wire_tap import WireTap, tapped

__all__ = ["hosts", "start"]  # fixtures

NAME = "sub/model-00001-of-00002.safetensors"


def transfer(hosts: list[str], start: Start, folder: Path, *, encrypt: bool) -> tuple[WireTap, Source]:
    """One file from the first host to the second, through a tap on the third."""
    source = Source(folder / "head", **{NAME.removeprefix("sub/"): 3 * PIECE})
    with serving(source, hosts[0], [hosts[2]], encrypt=encrypt), tapped(hosts[2], hosts[0], PORT) as tap:
        node = start(1, members=[[hosts[2]], [hosts[1]]], encrypt=encrypt)
        source.comes_to(node, folder / "node")
        node.__exit__()
    assert len(tap.all) > 3 * PIECE, "all of it went through the tap"
    return tap, source


def test_in_clear_the_wire_shows_names_and_payload_and_no_token(
    hosts: list[str], start: Start, tmp_path: Path
) -> None:
    tap, source = transfer(hosts, start, tmp_path, encrypt=False)
    assert NAME.encode() in tap.all
    assert (source.folder / NAME).read_bytes()[:64] in tap.all
    assert TOKEN.encode() not in tap.all


def test_encrypted_the_wire_shows_neither(hosts: list[str], start: Start, tmp_path: Path) -> None:
    tap, source = transfer(hosts, start, tmp_path, encrypt=True)
    seen = tap.all
    data, proof = (source.folder / NAME).read_bytes(), source.proofs[NAME]
    for start_at in range(0, len(data), PIECE // 2):
        assert data[start_at : start_at + 16] not in seen
    key, certificate = _identity(TOKEN)
    for secret in (NAME.encode(), b"safetensors", proof.version.encode(), TOKEN.encode(), b"HTTP", b"X-Head"):
        assert secret not in seen, secret
    assert ssl.PEM_cert_to_DER_cert(certificate.decode()) not in seen, "in TLS 1.3 it is encrypted too"
    assert key not in seen


def test_recorded_bytes_of_a_connection_admit_nobody(hosts: list[str], start: Start, tmp_path: Path) -> None:
    tap, source = transfer(hosts, start, tmp_path, encrypt=True)
    with serving(source, hosts[0], [hosts[2]], encrypt=True) as head:
        for recorded in tap.asked:
            answered = bytearray()
            with (
                socket.create_connection((hosts[0], PORT), source_address=(hosts[2], 0), timeout=3) as wire,
                suppress(OSError),  # it is cut off
            ):
                wire.sendall(recorded)
                while data := wire.recv(65536):
                    answered += data
            assert len(answered) < 10_000
        assert head.sent == 0


@pytest.mark.parametrize("theirs", ["guess", None])
def test_who_connects_without_the_tokens_key_gets_nothing(
    hosts: list[str], tmp_path: Path, theirs: str | None
) -> None:
    """Also who does not care who answers; and, for None, who has no key at all."""
    source = Source(tmp_path, file=PIECE)
    with serving(source, hosts[0], [hosts[1]], encrypt=True) as head:
        careless = contexts(theirs)[1] if theirs else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        careless.check_hostname = False
        careless.verify_mode = ssl.CERT_NONE
        link = linked(hosts[1], hosts[0])  # with the right token for its requests
        link._encryption = careless
        with pytest.raises(Unreachable):
            link.request(source.proofs["sub/file"].version, "sub/file", 0, PIECE)
        link.close()
        assert head.sent == 0


def test_a_listener_with_another_key_is_refused(hosts: list[str], tmp_path: Path) -> None:
    source = Source(tmp_path, file=PIECE)
    with (
        serving(source, hosts[0], [hosts[1]], "guess", encrypt=True),
        pytest.raises(PeerRefused, match="does not have the transfer's token"),
    ):
        linked(hosts[1], hosts[0], encrypt=True).request("0" * 32, "sub/file", 0, PIECE)


@pytest.mark.parametrize("encrypt", [False, True])
def test_one_that_encrypts_and_one_that_does_not_exchange_nothing(
    hosts: list[str], tmp_path: Path, encrypt: bool
) -> None:
    source = Source(tmp_path, file=PIECE)
    with serving(source, hosts[0], [hosts[1]], encrypt=encrypt) as head:
        link = linked(hosts[1], hosts[0], encrypt=not encrypt)
        with pytest.raises(Unreachable):
            link.request(source.proofs["sub/file"].version, "sub/file", 0, PIECE)
        link.close()
        with pytest.raises(Unreachable):
            link.exchange(b"{}", wait=False)
        link.close()
        assert head.sent == 0


def test_older_versions_of_tls_are_refused(hosts: list[str], tmp_path: Path) -> None:
    with serving(Source(tmp_path, file=PIECE), hosts[0], [hosts[1]], encrypt=True):
        old = contexts(TOKEN)[1]
        old.minimum_version = ssl.TLSVersion.TLSv1_2
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        link = linked(hosts[1], hosts[0])
        link._encryption = old
        with pytest.raises(ssl.SSLError):
            link.request("0" * 32, "sub/file", 0, PIECE)
        link.close()


def test_the_key_is_of_the_token_alone() -> None:
    assert _identity("one") == _identity("one")
    key, certificate = _identity("two")
    assert key != _identity("one")[0]
    assert certificate != _identity("one")[1]


def test_a_clock_that_was_never_set_does_not_matter() -> None:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(_identity(TOKEN)[1])
    assert certificate.not_valid_before_utc.timestamp() == 0
    assert certificate.not_valid_after_utc.year == 2999


def test_a_silent_connection_holds_nobody_up(hosts: list[str], tmp_path: Path) -> None:
    """The handshake is its own thread's."""
    source = Source(tmp_path, file=PIECE)
    version = source.proofs["sub/file"].version
    with serving(source, hosts[0], [hosts[1]], encrypt=True):
        silent = [
            socket.create_connection((hosts[0], PORT), source_address=(hosts[1], 0)) for _ in range(100)
        ]
        link = linked(hosts[1], hosts[0], encrypt=True)
        for _ in range(3):
            with suppress(*Unreachable):  # the useless ones give way
                assert read(link.request(version, "sub/file", 0, PIECE), PIECE)
                break
            link.close()
        else:
            raise AssertionError("a member is not answered")
        link.close()
        for connection in silent:
            connection.close()


def test_news_go_through_tls(hosts: list[str], start: Start) -> None:
    head, node = (start(index, 2, encrypt=True) for index in range(2))
    head.chain._board.describe(Overview(1, {"model": "m"}, {"a": 1}))
    board: Board = node.chain._board
    with board.changed:
        assert board.changed.wait_for(lambda: board.overview, 10)
    assert board.overview == Overview(1, {"model": "m"}, {"a": 1})
