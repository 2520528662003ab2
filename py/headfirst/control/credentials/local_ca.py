"""A certificate authority for one cluster, and the certificate that it signs for the proxy.

It can sign for the names and addresses of its cluster only: the certificate has critical name constraints.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Network

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headfirst.control.credentials.secrets import LocalCa

CA_DAYS = 3650
# Browsers refuse certificates that are valid for much longer.
CERTIFICATE_DAYS = 397
RENEW_DAYS = 30
# Clocks differ.
_BEFORE = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    """A new authority with its first certificate. `ca_key` (PEM) stays on the controller."""

    shared: LocalCa
    ca_key: str = field(repr=False)


def new_authority(cluster: str, names: Sequence[str], now: datetime.datetime | None = None) -> Issued:
    """An authority that can sign for these names and addresses only, with a certificate for all of them."""
    now = now or datetime.datetime.now(datetime.UTC)
    ca_key, key = _new_key(), _new_key()
    ca = _ca_certificate(cluster, names, ca_key, now)
    shared = LocalCa(
        ca_certificate=_pem(ca),
        certificate=_pem(_certificate(names, key, ca, ca_key, now)),
        key=_key_pem(key),
    )
    return Issued(shared, _key_pem(ca_key))


def new_certificate(
    authority: LocalCa, ca_key: str | None, names: Sequence[str], now: datetime.datetime | None = None
) -> LocalCa | None:
    """The same authority with a new certificate; None where `ca_key` (PEM) is not its key."""
    ca = x509.load_pem_x509_certificate(authority.ca_certificate.encode())
    loaded = serialization.load_pem_private_key(ca_key.encode(), None) if ca_key else None
    if not isinstance(loaded, ec.EllipticCurvePrivateKey) or loaded.public_key() != ca.public_key():
        return None
    key, now = _new_key(), now or datetime.datetime.now(datetime.UTC)
    certificate = _pem(_certificate(names, key, ca, loaded, now))
    return authority.model_copy(update={"certificate": certificate, "key": _key_pem(key)})


def is_current(authority: LocalCa, names: Sequence[str], now: datetime.datetime | None = None) -> bool:
    """Whether the certificate is for exactly these names and has 30 days left."""
    certificate = x509.load_pem_x509_certificate(authority.certificate.encode())
    rest = certificate.not_valid_after_utc - (now or datetime.datetime.now(datetime.UTC))
    return set(certificate_names(certificate)) == set(names) and rest >= datetime.timedelta(days=RENEW_DAYS)


def outlives_certificates(authority: LocalCa, now: datetime.datetime | None = None) -> bool:
    """Whether a certificate signed now ends before the authority."""
    remaining = not_after(authority.ca_certificate) - (now or datetime.datetime.now(datetime.UTC))
    return remaining >= datetime.timedelta(days=CERTIFICATE_DAYS)


def is_constrained(authority: LocalCa) -> bool:
    """Whether clients refuse what the authority signs for other sites; those of earlier releases are not."""
    return _constraints(authority) is not None


def is_limited_to(authority: LocalCa, names: Sequence[str]) -> bool:
    """Whether it is an authority for these names and addresses, and for nothing else."""
    ca = x509.load_pem_x509_certificate(authority.ca_certificate.encode())
    present = [(extension.value, extension.critical) for extension in ca.extensions]
    return all(limit in present for limit in _limits(names))


def permits(authority: LocalCa, names: Sequence[str]) -> bool:
    """Whether clients accept the authority's certificate for all of these names."""
    constraints = _constraints(authority)
    bases = [base.value for base in constraints.permitted_subtrees or []] if constraints else []
    return all(
        IPv4Network(general.value) in bases
        if isinstance(general, x509.IPAddress)
        else any(f".{_base(name)}".endswith(f".{base}") for base in bases if isinstance(base, str))
        for name, general in ((name, _general(name)) for name in names)
    )


def not_after(certificate: str) -> datetime.datetime:
    """When the first certificate in the text ends."""
    return x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc


def certificate_names(certificate: x509.Certificate) -> list[str]:
    """Names and addresses that a certificate is for."""
    try:
        san = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*san.get_values_for_type(x509.DNSName), *map(str, san.get_values_for_type(x509.IPAddress))]


def _constraints(authority: LocalCa) -> x509.NameConstraints | None:
    ca = x509.load_pem_x509_certificate(authority.ca_certificate.encode())
    try:
        extension = ca.extensions.get_extension_for_class(x509.NameConstraints)
    except x509.ExtensionNotFound:
        return None
    return extension.value if extension.critical else None


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _ca_certificate(
    cluster: str, names: Sequence[str], key: ec.EllipticCurvePrivateKey, now: datetime.datetime
) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Headfirst, cluster {cluster}")])
    builder = _valid(now, CA_DAYS).subject_name(name).issuer_name(name).public_key(key.public_key())
    for limit, critical in _limits(names):
        builder = builder.add_extension(limit, critical=critical)
    key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return builder.add_extension(key_id, critical=False).sign(key, hashes.SHA256())


def _limits(names: Sequence[str]) -> list[tuple[x509.ExtensionType, bool]]:
    """What an authority for these names is limited by, each with whether it is critical."""
    return [
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_usage(key_cert_sign=True), True),
        (_only(names), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
    ]


def _only(names: Sequence[str]) -> x509.NameConstraints:
    """These names, those below them, and these addresses. A type without a permitted name is excluded."""
    permitted: list[x509.GeneralName] = []
    for general in map(_general, sorted(names)):
        address = isinstance(general, x509.IPAddress)
        permitted.append(
            x509.IPAddress(IPv4Network(general.value)) if address else x509.DNSName(_base(general.value))
        )
    excluded: list[x509.GeneralName] = [x509.IPAddress(IPv6Network("::/0"))]
    if not any(isinstance(base, x509.DNSName) for base in permitted):
        excluded.append(x509.DNSName(""))
    if not any(isinstance(base, x509.IPAddress) for base in permitted):
        excluded.append(x509.IPAddress(IPv4Network("0.0.0.0/0")))
    return x509.NameConstraints(permitted, excluded)


def _base(name: str) -> str:
    """What a constraint needs for a name: it covers all names below it, so also those of a pattern."""
    return name.removeprefix("*.")


def _certificate(
    names: Sequence[str],
    key: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
) -> x509.Certificate:
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
    builder = x509.CertificateBuilder().serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - _BEFORE).not_valid_after(now + datetime.timedelta(days=days))


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
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
    try:
        return x509.IPAddress(IPv4Address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
