"""The authority of a cluster: OpenSSL verifies what it signs, for its own names only; renewed in time."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from headfirst.control.credentials import local_ca
from headfirst.control.credentials.local_ca import Issued, LocalCa, new_authority, new_certificate, not_after

NAMES = ["llm.example.org", "192.0.2.11"]
NOW = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)


def signed_for(issued: Issued, names: Sequence[str]) -> LocalCa:
    """What the authority's key signs in the hands of whoever took it."""
    found = new_certificate(issued.shared, issued.ca_key, names)
    assert found
    return found


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
    own = new_authority("mine", NAMES).shared
    handshake(tmp_path, own, name, own.ca_certificate)


def test_another_name_and_another_authority_are_refused(tmp_path: Path) -> None:
    own = new_authority("mine", NAMES).shared
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        handshake(tmp_path, own, "192.0.2.12", own.ca_certificate)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, own, NAMES[0], new_authority("other", NAMES).shared.ca_certificate)


@pytest.mark.parametrize("names", [NAMES, NAMES[:1], NAMES[1:]], ids=["both", "names only", "addresses only"])
@pytest.mark.parametrize("other", ["accounts.google.com", "example.org", "xllm.example.org", "192.0.2.12"])
def test_what_a_taken_key_signs_for_another_site_is_refused(
    tmp_path: Path, names: list[str], other: str
) -> None:
    issued = new_authority("mine", names)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"(permitted|excluded) subtree"):
        handshake(tmp_path, signed_for(issued, [other]), other, issued.shared.ca_certificate)
    # Beside a name that it may sign, too.
    with pytest.raises(ssl.SSLCertVerificationError, match=r"(permitted|excluded) subtree"):
        handshake(tmp_path, signed_for(issued, [*names, other]), names[0], issued.shared.ca_certificate)


def test_it_signs_certificates_of_servers_only() -> None:
    ca = x509.load_pem_x509_certificate(new_authority("mine", NAMES).shared.ca_certificate.encode())
    uses = ca.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0


def test_a_pattern_and_names_below_it(tmp_path: Path) -> None:
    issued = new_authority("mine", ["*.example.org"])
    handshake(tmp_path, issued.shared, "a.example.org", issued.shared.ca_certificate)
    assert local_ca.permits(issued.shared, ["example.org", "b.example.org", "a.b.example.org"])
    with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree"):
        handshake(
            tmp_path, signed_for(issued, ["a.example.com"]), "a.example.com", issued.shared.ca_certificate
        )


@pytest.mark.parametrize(
    ("names", "permitted"),
    [
        (NAMES, True),
        (NAMES[1:], True),
        (["a.llm.example.org"], True),
        ([*NAMES, "192.0.2.12"], False),
        (["example.org"], False),
        (["*.example.org"], False),
        (["xllm.example.org"], False),
    ],
)
def test_the_names_that_clients_accept_of_it(names: list[str], permitted: bool) -> None:
    assert local_ca.permits(new_authority("mine", NAMES).shared, names) is permitted


def test_it_is_kept_until_30_days_are_left() -> None:
    own = new_authority("mine", NAMES, NOW).shared
    ends = not_after(own.certificate)
    assert local_ca.is_current(own, list(reversed(NAMES)), ends - datetime.timedelta(days=30))
    assert not local_ca.is_current(own, NAMES, ends - datetime.timedelta(days=29))
    assert not local_ca.is_current(own, NAMES[:1], NOW)


def test_a_later_certificate_is_of_the_same_authority(tmp_path: Path) -> None:
    issued = new_authority("mine", NAMES)
    later = signed_for(issued, NAMES[1:])
    assert later.ca_certificate == issued.shared.ca_certificate
    assert later.key != issued.shared.key
    handshake(tmp_path, later, NAMES[1], issued.shared.ca_certificate)


@pytest.mark.parametrize("other", [None, new_authority("mine", NAMES).ca_key], ids=["none", "another's"])
def test_without_the_authoritys_key_nothing_is_signed(other: str | None) -> None:
    assert new_certificate(new_authority("mine", NAMES).shared, other, NAMES) is None


def test_no_certificate_outlives_its_authority() -> None:
    own = new_authority("mine", NAMES, NOW).shared
    last = not_after(own.ca_certificate) - datetime.timedelta(days=local_ca.CERTIFICATE_DAYS)
    assert local_ca.outlives_certificates(own, last)
    assert not local_ca.outlives_certificates(own, last + datetime.timedelta(seconds=1))
    assert not_after(own.ca_certificate) > NOW + datetime.timedelta(days=3000)
