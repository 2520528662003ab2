"""`deploy credentials`: the credentials of a cluster, read from its head, and replaced."""

from __future__ import annotations

from dataclasses import replace

from headfirst.common.errors import NotReadyError
from headfirst.control.credentials.secrets import Secrets, existing
from headfirst.control.deployment import api_keys
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.running.claim import current_credentials, refuse_foreign
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.verbs.up import UpOutcome, up
from headfirst.control.inventory.inventory import load
from headfirst.control.ownership.lease import look
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.decide.cluster.types import Cluster, Service

# Stages that take a key or a password.
TAGS = ("supervisor", "router", "serve", "webui", "proxy", "monitoring")


def show(options: RunOptions) -> tuple[Cluster, Service | None, Secrets]:
    """The cluster, the only service that is named, and the credentials that its services have now."""
    cluster = load(options.inventories, options.extra_vars)
    service = cluster.whole_service(options.service)
    secrets = current_credentials(cluster)
    if secrets is None:
        raise _not_up(cluster)
    return cluster, service, secrets


def rotate(options: RunOptions, reporter: Reporter) -> UpOutcome:
    """Make new credentials and apply them: one restart of the ranks and of the chat page."""
    cluster = load(options.inventories, options.extra_vars)
    states = look([host_access(cluster)[cluster.head.name]])
    refuse_foreign(cluster, states)
    if states[cluster.head.name].owner is None:
        raise _not_up(cluster)
    present = states[cluster.head.name].credentials or existing(cluster)
    if present and not present.is_rotating:
        api_keys.refuse_rotation(cluster, present)
    return up(replace(options, tags=TAGS), reporter, rotate=True)


def _not_up(cluster: Cluster) -> NotReadyError:
    return NotReadyError(
        f"cluster {cluster.name} is not up: there are no credentials to use",
        where=cluster.head.name,
        hint=f"Bring it up: deploy up {cluster.inventories[0]}",
    )
