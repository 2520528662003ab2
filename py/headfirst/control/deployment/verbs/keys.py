"""`deploy keys`: make, list and revoke API keys with names; the proxy of a running cluster follows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from headfirst.common.errors import HeadfirstError, InputError
from headfirst.control.credentials.secrets import KeyName, NamedKey, new_key
from headfirst.control.deployment.running.claim import ClaimedCluster, claimed, current_credentials
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.playbooks import run_stages
from headfirst.control.deployment.running.role_vars.front import keys_vars
from headfirst.control.inventory.inventory import load
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.decide.cluster.types import Cluster

# The record of all credentials on the head has 64 KiB.
MOST = 100
_RATE = re.compile(r"([1-9]\d{0,6})/min")


@dataclass(frozen=True)
class MadeKey:
    """A new key, and where it is accepted."""

    key: str = field(repr=False)
    urls: list[str]


def requests_per_minute(rate: str | None) -> int | None:
    """`60/min` as a number. InputError for anything else."""
    if rate is None:
        return None
    match = _RATE.fullmatch(rate)
    if match is None or int(match.group(1)) > 1_000_000:
        raise InputError(f"{rate!r} is not a rate", where="--rate", hint="For example: --rate 60/min")
    return int(match.group(1))


def add(options: RunOptions, name: str, limit: int | None) -> MadeKey:
    """Make a key of this name, for `options.service` or for all.

    InputError where there is one already; NotReadyError where no proxy runs.
    """
    cluster = _load(options)
    _require_name(name)
    service = cluster.whole_service(options.service)
    key, record = new_key(service.name if service else None, limit)
    with claimed(cluster, options, "keys add", QuietReporter()) as claim:
        if name in claim.secrets.named_keys:
            raise InputError(
                f"there is a key {name} already",
                hint="Choose another name, or revoke it first: "
                f"deploy keys revoke {options.inventories[0]} {name}",
            )
        if len(claim.secrets.named_keys) >= MOST:
            raise InputError(f"there are {MOST} keys already", hint="Revoke the keys that are not in use.")
        changed = _change(claim, claim.secrets.named_keys | {name: record})
        try:
            _apply(changed, options)
        except HeadfirstError:
            _change(changed, claim.secrets.named_keys)  # nobody has seen the new key
            raise
    services = [service] if service else list(cluster.services)
    return MadeKey(key, [f"{cluster.proxy_url}{path}" for path in map(cluster.api_path, services)])


def names(options: RunOptions) -> Mapping[str, NamedKey]:
    """The keys by name, as the head has them."""
    secrets = current_credentials(_load(options))
    return dict(sorted(secrets.named_keys.items())) if secrets else {}


def revoke(options: RunOptions, name: str) -> None:
    """Refuse a key from now on. InputError where there is none of this name."""
    cluster = _load(options)
    with claimed(cluster, options, "keys revoke", QuietReporter()) as claim:
        keys = claim.secrets.named_keys
        if name not in keys:
            listed = f"Keys: {', '.join(sorted(keys))}." if keys else "There are no keys."
            raise InputError(f"there is no key {name!r}", hint=listed)
        # Where the proxy cannot be reached the key stays revoked: the next run applies it.
        _apply(_change(claim, {other: key for other, key in keys.items() if other != name}), options)


def _load(options: RunOptions) -> Cluster:
    """The cluster, limited to the hosts that a change of keys needs: another one may be down."""
    cluster = load(options.inventories, options.extra_vars)
    if not cluster.has_proxy:
        raise InputError(
            "keys with names need the proxy",
            where=cluster.given.get("proxy"),
            hint="Write proxy=true, or tls=local-ca, under [all:vars] and run: "
            f"deploy up {options.inventories[0]}",
        )
    return cluster.limited([cluster.head.name, cluster.webui.name])


def _require_name(name: str) -> None:
    try:
        TypeAdapter(KeyName).validate_python(name)
    except ValidationError:
        raise InputError(
            f"{name!r} cannot be the name of a key",
            hint="Write at most 63 lower-case letters, digits, dots, dashes and underscores, such as alice.",
        ) from None


def _change(claim: ClaimedCluster, keys: Mapping[str, NamedKey]) -> ClaimedCluster:
    return claim.change(claim.secrets.model_copy(update={"named_keys": dict(keys)}))


def _apply(claim: ClaimedCluster, options: RunOptions) -> None:
    run_stages("keys.yml", options, claim.cluster, keys_vars(claim.cluster, claim.secrets), QuietReporter())
