"""The proxy's certificate: files of this machine, or one of the authority made for the cluster."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from headfirst.common.errors import InputError, NotReadyError
from headfirst.common.state_files import read_file, replace_file
from headfirst.control.credentials import local_ca
from headfirst.control.credentials.identity import cluster_folder
from headfirst.control.credentials.secrets import LocalCa, Secrets
from headfirst.control.inventory.local_files import local_file
from headfirst.decide.cluster.types import Cluster


@dataclass(frozen=True)
class Certificate:
    """PEM texts, empty for plain HTTP; `ends` in seconds since 1970."""

    certificate: str = ""
    key: str = field(default="", repr=False)
    ends: int = 0


@dataclass(frozen=True)
class Signed:
    """Secrets with the certificate that they need. `ca_key` (PEM) is that of a new authority."""

    secrets: Secrets
    ca_key: str | None = field(default=None, repr=False)
    warning: str | None = None


def with_certificate(cluster: Cluster, secrets: Secrets, *, rotates: bool = False) -> Signed:
    """The secrets with a certificate of the cluster's own authority, where `tls` asks for that.

    An authority signs for the names that it was made for; further names need another one. NotReadyError: the
    certificate ended, and the authority's key is not here. A rotation then makes another authority.
    """
    if cluster.settings.tls != "local-ca":
        return Signed(secrets)
    authority, names = secrets.local_ca, cluster.proxy_names
    if authority is None:
        return _new_authority(cluster, secrets)
    if not local_ca.is_constrained(authority) or not _is_trustworthy(cluster, authority):
        return _new_authority(cluster, secrets, "the one before was not limited to this cluster's names")
    if not local_ca.permits(authority, names):
        return _new_authority(
            cluster, secrets, "the one before is not for all names and addresses of the proxy"
        )
    if local_ca.is_current(authority, names):
        return Signed(secrets)
    if not local_ca.outlives_certificates(authority):
        return _new_authority(cluster, secrets, "the one before ends within its last year")
    if new := local_ca.new_certificate(authority, read_file(_ca_key_file(cluster)), names):
        return Signed(secrets.model_copy(update={"local_ca": new}))
    if rotates:
        return _new_authority(cluster, secrets, "the key of the one before is not on this controller")
    ends = local_ca.not_after(authority.certificate)
    what = "the proxy's certificate cannot be replaced: the key of its authority is not on this controller"
    ways = (
        f"Run `deploy up` on the controller that has the key, or copy ca-key.pem from there to "
        f"{_ca_key_file(cluster)}. If the key is lost: deploy credentials {cluster.inventories[0]} --rotate "
        f"(users must then trust another authority)."
    )
    if ends <= datetime.datetime.now(datetime.UTC):
        raise NotReadyError(f"{what}, and it ended on {ends:%Y-%m-%d}", where=cluster.webui.name, hint=ways)
    return Signed(secrets, warning=f"{what}; it ends on {ends:%Y-%m-%d}. {ways}")


def keep_ca_key(cluster: Cluster, ca_key: str) -> None:
    """Keep the key of a new authority, here only: a host that has it could pose as the proxy."""
    replace_file(_ca_key_file(cluster), ca_key)


def certificate_of(cluster: Cluster, secrets: Secrets) -> Certificate:
    """What the proxy is to present. InputError for files that cannot be used."""
    if cluster.settings.tls == "files":
        return _from_files(cluster)
    if cluster.settings.tls == "none" or secrets.local_ca is None:
        return Certificate()
    authority = secrets.local_ca
    ends = int(local_ca.not_after(authority.certificate).timestamp())
    return Certificate(authority.certificate, authority.key, ends)


def keep_ca(cluster: Cluster, secrets: Secrets) -> Path | None:
    """The file with the authority's certificate, for people to trust; None where there is none.

    None also where the head has one that `with_certificate` would replace.
    """
    if cluster.settings.tls != "local-ca" or secrets.local_ca is None:
        return None
    if not _is_trustworthy(cluster, secrets.local_ca):
        return None
    path = _ca_file(cluster)
    if not path.exists() or path.read_text() != secrets.local_ca.ca_certificate:
        replace_file(path, secrets.local_ca.ca_certificate)
    return path


def _is_trustworthy(cluster: Cluster, authority: LocalCa) -> bool:
    """Whether people may trust what the head has as the authority; whoever took the head could change it."""
    is_ours = read_file(_ca_file(cluster)) == authority.ca_certificate
    return is_ours or local_ca.is_limited_to(authority, cluster.proxy_names)


def _new_authority(cluster: Cluster, secrets: Secrets, reason: str = "") -> Signed:
    issued = local_ca.new_authority(cluster.name, cluster.proxy_names)
    warning = (
        f"another authority signs the proxy's certificate, since {reason}. Give users the new file "
        f"({_ca_file(cluster)}); they must remove the authority that they trusted before"
    )
    return Signed(
        secrets.model_copy(update={"local_ca": issued.shared}), issued.ca_key, warning if reason else None
    )


def _ca_key_file(cluster: Cluster) -> Path:
    return cluster_folder(cluster) / "ca-key.pem"


def _ca_file(cluster: Cluster) -> Path:
    return cluster_folder(cluster) / "ca.pem"


def _from_files(cluster: Cluster) -> Certificate:
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


def _refuse_other_names(cluster: Cluster, names: list[str], where: str) -> None:
    shown = cluster.proxy_names[0]
    if shown in names or f"*.{shown.partition('.')[2]}" in names:
        return
    raise InputError(
        f"the certificate is not for {shown}, but for {', '.join(names) or 'no name'}",
        where=where,
        hint="Write the name at which people reach the cluster: tls_names="
        + next((name for name in names if not name.startswith("*")), "NAME"),
    )


def _read(cluster: Cluster, name: str, value: str | None) -> tuple[str, str]:
    if not value:
        raise InputError(
            f"tls=files needs {name}",
            where=cluster.given.get("tls"),
            hint="Write tls_certificate=/path/to/chain.pem and tls_key=/path/to/key.pem under [all:vars].",
        )
    path = local_file(cluster, value)
    try:
        return path.read_text(), str(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(f"{name} cannot be read: {path}: {reason}", where=cluster.given.get(name)) from None
