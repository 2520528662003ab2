"""The proxy's certificate: files of this machine, or one of the authority made for the cluster."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from pathlib import Path

from headfirst.cluster import local_ca
from headfirst.cluster.identity import cluster_folder
from headfirst.cluster.secrets import Secrets
from headfirst.cluster.source import locate_variable
from headfirst.cluster.types import Cluster
from headfirst.errors import InputError
from headfirst.state_files import replace_file


@dataclass(frozen=True)
class Certificate:
    """PEM texts, empty for plain HTTP; `ends` in seconds since 1970."""

    certificate: str = ""
    key: str = field(default="", repr=False)
    ends: int = 0


def with_certificate(cluster: Cluster, secrets: Secrets) -> Secrets:
    """The secrets with a certificate of the cluster's own authority, where `tls` asks for that."""
    if cluster.settings.tls != "local-ca":
        return secrets
    wanted = local_ca.renewed(secrets.local_ca, cluster.name, cluster.proxy_names)
    return secrets if wanted is secrets.local_ca else secrets.model_copy(update={"local_ca": wanted})


def certificate_of(cluster: Cluster, secrets: Secrets) -> Certificate:
    """What the proxy is to present. InputError for files that cannot be used."""
    if cluster.settings.tls == "files":
        return _from_files(cluster)
    if cluster.settings.tls == "none" or secrets.local_ca is None:
        return Certificate()
    own = secrets.local_ca
    return Certificate(own.certificate, own.key, int(local_ca.not_after(own.certificate).timestamp()))


def keep_ca(cluster: Cluster, secrets: Secrets) -> Path | None:
    """The file with the authority's certificate, for people to trust; None where there is none."""
    if cluster.settings.tls != "local-ca" or secrets.local_ca is None:
        return None
    path = cluster_folder(cluster) / "ca.pem"
    if not path.exists() or path.read_text() != secrets.local_ca.ca_certificate:
        replace_file(path, secrets.local_ca.ca_certificate)
    return path


def _from_files(cluster: Cluster) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    text, where = _read(cluster, "tls_certificate", cluster.settings.tls_certificate)
    key_text, key_where = _read(cluster, "tls_key", cluster.settings.tls_key)
    try:
        certificate = x509.load_pem_x509_certificates(text.encode())[0]
    except ValueError as error:
        raise InputError(f"this is not a certificate in PEM: {error}", where=where) from None
    try:
        key = load_pem_private_key(key_text.encode(), None)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"this is not a private key in PEM without a password: {error}", where=key_where
        ) from None
    if key.public_key() != certificate.public_key():
        raise InputError(f"the key is not that of {where}", where=key_where)
    ends = certificate.not_valid_after_utc
    if ends <= datetime.datetime.now(datetime.UTC):
        raise InputError(f"the certificate ended on {ends:%Y-%m-%d}", where=where)
    _refuse_other_names(cluster, local_ca.certificate_names(certificate), where)
    return Certificate(text, key_text, int(ends.timestamp()))


def _refuse_other_names(cluster: Cluster, found: list[str], where: str) -> None:
    shown = cluster.proxy_names[0]
    if shown in found or f"*.{shown.partition('.')[2]}" in found:
        return
    raise InputError(
        f"the certificate is not for {shown}, but for {', '.join(found) or 'no name'}",
        where=where,
        hint="Write the name at which people reach the cluster: tls_names="
        + next((name for name in found if not name.startswith("*")), "NAME"),
    )


def _read(cluster: Cluster, name: str, value: str | None) -> tuple[str, str]:
    if not value:
        raise InputError(
            f"tls=files needs {name}",
            where=locate_variable("tls", cluster.inventories),
            hint="Write tls_certificate=/path/to/chain.pem and tls_key=/path/to/key.pem under [all:vars].",
        )
    path = Path(value).expanduser().absolute()
    try:
        return path.read_text(), str(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(
            f"{name} cannot be read: {path}: {reason}", where=locate_variable(name, cluster.inventories)
        ) from None
