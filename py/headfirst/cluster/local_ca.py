"""A certificate authority for one cluster, and the certificate that it signs for the proxy."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CA_DAYS = 3650
# Browsers refuse certificates that are valid for much longer.
CERTIFICATE_DAYS = 397
RENEW_DAYS = 30
# Clocks differ.
_BEFORE = datetime.timedelta(days=1)

# Becomes an Ansible variable: without braces it is no template.
Pem = Annotated[str, Field(pattern=r"^-----BEGIN [A-Z ]+-----\n[A-Za-z0-9+/=\n]+-----END [A-Z ]+-----\n$")]


class LocalCa(BaseModel):
    """The authority, and its present certificate for the proxy; all PEM."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    ca_certificate: Pem
    ca_key: Pem
    certificate: Pem
    key: Pem


def renewed(
    found: LocalCa | None, cluster: str, names: Sequence[str], now: datetime.datetime | None = None
) -> LocalCa:
    """The same where its certificate is for these names and has 30 days left, else a new certificate.

    The authority is made where there is none, and replaced in its last year only.
    """
    now = now or datetime.datetime.now(datetime.UTC)
    if found is not None and _serves(found, names, now):
        return found
    if found is None or not_after(found.ca_certificate) - now < datetime.timedelta(days=CERTIFICATE_DAYS):
        ca_key = _new_key()
        ca_certificate = _ca_certificate(cluster, ca_key, now)
    else:
        ca_key, ca_certificate = _loaded(found)
    key = _new_key()
    return LocalCa(
        ca_certificate=_pem(ca_certificate),
        ca_key=_key_pem(ca_key),
        certificate=_pem(_certificate(names, key, ca_certificate, ca_key, now)),
        key=_key_pem(key),
    )


def not_after(certificate: str) -> datetime.datetime:
    """When the first certificate in the text ends."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc


def certificate_names(certificate: x509.Certificate) -> list[str]:
    """Names and addresses that a certificate is for."""
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))]


def _serves(found: LocalCa, names: Sequence[str], now: datetime.datetime) -> bool:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(found.certificate.encode())
    left = certificate.not_valid_after_utc - now
    return set(certificate_names(certificate)) == set(names) and left >= datetime.timedelta(days=RENEW_DAYS)


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _loaded(found: LocalCa) -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(found.ca_key.encode(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("the key of the authority is not of the type that Headfirst creates")
    return key, x509.load_pem_x509_certificate(found.ca_certificate.encode())


def _ca_certificate(cluster: str, key: EllipticCurvePrivateKey, now: datetime.datetime) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Headfirst, cluster {cluster}")])
    return (
        _valid(now, CA_DAYS)
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _certificate(
    names: Sequence[str],
    key: EllipticCurvePrivateKey,
    ca: x509.Certificate,
    ca_key: EllipticCurvePrivateKey,
    now: datetime.datetime,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    return (
        _valid(now, CERTIFICATE_DAYS)
        .subject_name(x509.Name([]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        # Critical, since the certificate has no other name.
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )


def _valid(now: datetime.datetime, days: int) -> x509.CertificateBuilder:
    from cryptography import x509

    builder = x509.CertificateBuilder().serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - _BEFORE).not_valid_after(now + datetime.timedelta(days=days))


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=key_cert_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(IPv4Address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _key_pem(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
