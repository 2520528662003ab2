"""The authority of a cluster: what it signs is verified by OpenSSL, renewed in time, and otherwise kept."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from headfirst.cluster.local_ca import LocalCa, not_after, renewed

NAMES = ["llm.example.org", "192.0.2.11"]
NOW = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)


def handshake(tmp_path: Path, own: LocalCa, name: str, trusted: str) -> None:
    """A server with the certificate, and a client that trusts `trusted`, in memory."""
    (tmp_path / "server.pem").write_text(own.certificate + own.key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.pem")
    client = ssl.create_default_context(cadata=trusted)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    pipes = [ssl.MemoryBIO() for _ in range(2)]
    ends = [
        client.wrap_bio(pipes[0], pipes[1], server_hostname=name),
        server.wrap_bio(pipes[1], pipes[0], server_side=True),
    ]
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ends[0].version() == "TLSv1.3"
    assert ends[0].getpeercert()


@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_trusts_the_authority_accepts_the_certificate(tmp_path: Path, name: str) -> None:
    own = renewed(None, "mine", NAMES)
    handshake(tmp_path, own, name, own.ca_certificate)


def test_another_name_and_another_authority_are_refused(tmp_path: Path) -> None:
    own = renewed(None, "mine", NAMES)
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        handshake(tmp_path, own, "192.0.2.12", own.ca_certificate)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, own, NAMES[0], renewed(None, "other", NAMES).ca_certificate)


def test_it_is_kept_until_30_days_are_left() -> None:
    own = renewed(None, "mine", NAMES, NOW)
    ends = not_after(own.certificate)
    assert renewed(own, "mine", list(reversed(NAMES)), ends - datetime.timedelta(days=30)) is own
    later = renewed(own, "mine", NAMES, ends - datetime.timedelta(days=29))
    assert later.certificate != own.certificate
    assert later.ca_certificate == own.ca_certificate
    assert not_after(later.certificate) > ends


def test_other_names_give_another_certificate_of_the_same_authority(tmp_path: Path) -> None:
    own = renewed(None, "mine", NAMES)
    other = renewed(own, "mine", ["192.0.2.12"])
    assert other.ca_key == own.ca_key
    assert other.key != own.key
    handshake(tmp_path, other, "192.0.2.12", own.ca_certificate)


def test_no_certificate_outlives_its_authority() -> None:
    own = renewed(None, "mine", NAMES, NOW)
    found, now = own, NOW
    while found.ca_certificate == own.ca_certificate:
        assert not_after(found.certificate) <= not_after(found.ca_certificate)
        now = not_after(found.certificate) - datetime.timedelta(days=29)
        found = renewed(found, "mine", NAMES, now)
    assert not_after(own.ca_certificate) > NOW + datetime.timedelta(days=3000)


def test_the_authority_signs_no_other_authority() -> None:
    ca = x509.load_pem_x509_certificate(renewed(None, "mine", NAMES).ca_certificate.encode())
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0
