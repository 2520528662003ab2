"""Settings that are set, and that nothing of the plan or no plan uses: each gets a note. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from headfirst.decide.cluster.settings import ClusterSettings
from headfirst.decide.cluster.types import Cluster, Host, Service

_Row = tuple[str, Sequence[str], Callable[[Any], bool]]
_EXTRA = "extra variables (-e)"


def _starting(*prefixes: str) -> list[str]:
    return [name for name in ClusterSettings.model_fields if name.startswith(prefixes)]


# What a setting needs, names of settings, and whether a cluster, a service or a host has it.
_OF_CLUSTER: Sequence[_Row] = (
    (
        "a host in [monitoring]",
        _starting("prometheus_", "grafana_", "node_exporter_", "dcgm_exporter_"),
        lambda cluster: cluster.monitoring is not None,
    ),
    ("tls=files", ("tls_certificate", "tls_key"), lambda cluster: cluster.settings.tls == "files"),
    ("tls=files or tls=local-ca", ("tls_names",), lambda cluster: cluster.has_tls),
    ("proxy=true or tls", _starting("proxy_"), lambda cluster: cluster.has_proxy),
    ("a router", _starting("router_"), lambda cluster: bool(cluster.router_hosts)),
    ("a host in [spares]", ("spare_takeover",), lambda cluster: bool(cluster.spares)),
    ("lab=true of a host", ("lab_subnet",), lambda cluster: bool(cluster.lab_hosts)),
)
_CHAT_PAGE: _Row = ("a service that chats: the chat page does not run", _starting("webui_"), lambda _: False)
_OF_SERVICE: Sequence[_Row] = (
    (
        "a router",
        ("router_port", "router_metrics_port", "router_policy", "drain_timeout"),
        lambda service: bool(service.routers),
    ),
    (
        "prefill_replicas and decode_replicas",
        ("kv_transfer", "kv_transfer_port"),
        lambda service: service.roles[0] is not None,
    ),
    (
        "engine_image_source=tarball",
        ("engine_image_tarball",),
        lambda service: service.settings.engine_image_source == "tarball",
    ),
    ("a model of a hub", ("model_revision",), lambda service: service.settings.source.is_hub),
    (
        "engine_device=cuda",
        ("gpu_devices", "gpus_per_replica"),
        lambda service: service.settings.engine_device == "cuda",
    ),
)
_OF_HOST: Sequence[_Row] = (("lab=true", ("lab_memory", "lab_cpus"), lambda host: host.lab),)


def notes(cluster: Cluster, *, chats: bool) -> list[str]:
    """A note for each, with its place; `chats`: whether the chat page runs."""
    of_cluster = _OF_CLUSTER if chats else (*_OF_CLUSTER, _CHAT_PAGE)
    cpu = any(service.settings.engine_device == "cpu" for service in cluster.services)
    of_host = (*_OF_HOST, ("engine_device=cpu", ("cpu_cores",), lambda _: cpu))
    tables = ((of_cluster, [cluster]), (_OF_SERVICE, cluster.services), (of_host, cluster.hosts))
    notes = [note for rows, subjects in tables for note in _notes(rows, subjects, cluster)]
    return [*notes, *dict.fromkeys(_retired(cluster))]


def _notes(
    rows: Iterable[_Row], subjects: Sequence[Cluster | Service | Host], cluster: Cluster
) -> Iterator[str]:
    for needed, names, is_there in rows:
        for name in names:
            having = [subject for subject in subjects if _is_set(subject, name)]
            if having and not any(map(is_there, having)):
                where = getattr(having[0], "given", cluster.given).get(name) or _EXTRA
                yield f"{where}: {name} has no effect without {needed}"


def _retired(cluster: Cluster) -> Iterator[str]:
    """Of settings that a later release refuses."""
    for service in cluster.services:
        if service.settings.weights_carrier == "rdma":
            where = service.given.get("weights_carrier") or _EXTRA
            yield (
                f"{where}: weights_carrier=rdma is not used: the weights travel over TCP. "
                "Remove the line; a later release refuses it."
            )


def _is_set(subject: Cluster | Service | Host, name: str) -> bool:
    """Whether it has another value than without the inventory's."""
    if isinstance(subject, Host):
        return getattr(subject, name) is not None
    settings = subject.settings
    default = type(settings).model_fields[name].get_default(call_default_factory=True)
    return name in subject.given and getattr(settings, name) not in (default, "")
