"""TLS between members, from nothing but the transfer's token.

Every member derives the same private key and the same certificate from the token, presents it, and accepts
no other: who does not have the token cannot connect, and nothing has to be distributed. TLS 1.3 agrees on
fresh keys for each connection, so that a recorded transfer stays secret even if the token is found later.
"""

from __future__ import annotations

import datetime
import hmac
import os
import ssl

_NAME = "headfirst-weights"


def contexts(token: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a listener and of a caller."""
    key, certificate = _identity(token)
    made = []
    file = os.memfd_create(_NAME)  # ssl reads keys from files only: this one is in memory
    try:
        os.write(file, key + certificate)
        for side in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
            context = ssl.SSLContext(side)
            context.check_hostname = False  # members are reached by address, and known by the key
            context.verify_mode = ssl.CERT_REQUIRED
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.load_cert_chain(f"/proc/self/fd/{file}")
            context.load_verify_locations(cadata=certificate.decode())
            made.append(context)
    finally:
        os.close(file)
    return made[0], made[1]


def _identity(token: str) -> tuple[bytes, bytes]:
    """Private key and self-signed certificate as PEM; equal for equal tokens, and valid at any time."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.x509.oid import NameOID

    seed = hmac.digest(token.encode(), b"headfirst weights tls", "sha256")
    key = Ed25519PrivateKey.from_private_bytes(seed)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.datetime(1970, 1, 1))
        .not_valid_after(datetime.datetime(2999, 1, 1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, None)  # Ed25519 has no random part: all members make the same bytes
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, certificate.public_bytes(serialization.Encoding.PEM)
