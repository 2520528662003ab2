"""Prometheus, Grafana and the exporters: which containers run where, and what Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from headfirst.decide import engines
from headfirst.decide.cluster.settings import ClusterSettings
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.containers.spec import Container, gpu_options
from headfirst.decide.engines.base import Metrics
from headfirst.decide.plan.types import Monitoring, MonitoringContainer, PlannedService, Proxy

PROMETHEUS, GRAFANA = "headfirst-prometheus", "headfirst-grafana"
NODE_EXPORTER, DCGM_EXPORTER = "headfirst-node-exporter", "headfirst-dcgm-exporter"
PROMETHEUS_IMAGE = "prom/prometheus:v3.5.0"
NODE_EXPORTER_IMAGE = "prom/node-exporter:v1.9.1"
# What control/images/recipes.py builds: both programs.
BUILT_IMAGE = "headfirst/prometheus:2.42.0"
GRAFANA_IMAGE = "grafana/grafana:12.0.2"
DCGM_EXPORTER_IMAGE = "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-distroless"

CONFIG, KEYS, DATA = (
    "/etc/headfirst/prometheus",
    "/etc/headfirst/prometheus-keys",
    "/var/lib/headfirst/prometheus",
)
GRAFANA_CONFIG, GRAFANA_SECRETS, GRAFANA_DATA = (
    "/etc/headfirst/grafana",
    "/etc/headfirst/grafana-secrets",
    "/var/lib/headfirst/grafana",
)
# Figures that other programs of a host write for its exporter, as NAME.prom.
TEXTFILES = "/var/lib/headfirst/metrics"

# Prometheus runs as nobody, as its image does, in a group of its own: other programs of nobody, such as the
# exporter, which sees all files of the host, cannot read its keys. In no range from which users get theirs.
PROMETHEUS_USER, PROMETHEUS_GROUP = 65534, 64797

# Of one answer: a target that sends more is down, so that none of them fills memory and disk. In each job,
# since Prometheus 2.42 has no such setting for all.
_LIMITS = {"sample_limit": 50_000, "body_size_limit": "32MB"}

Group = dict[str, Any]
"""A target group of file_sd: `targets` and `labels`."""


def plan(cluster: Cluster) -> Monitoring | None:
    """The containers of monitoring; None without a group [monitoring]."""
    host = cluster.monitoring
    if host is None:
        return None
    exporters = [exporter for node in cluster.nodes for exporter in _exporters(cluster, node)]
    prometheus = _prometheus(host, cluster.settings)
    grafana = _grafana(host, cluster.settings) if cluster.settings.grafana else None
    return Monitoring(
        host=host.name,
        prometheus_url=prometheus.url,
        grafana_url=grafana.url if grafana else None,
        containers=[prometheus, *([grafana] if grafana else []), *exporters],
    )


def exporter_ports(cluster: Cluster, host: Host) -> list[int]:
    """Ports of a host's exporters, which Prometheus alone has to reach."""
    if cluster.monitoring is None or host not in cluster.nodes:
        return []
    settings = cluster.settings
    gpus = [settings.dcgm_exporter_port] if _has_gpus(cluster, host) else []
    return [settings.node_exporter_port, *gpus]


def monitoring_ports(cluster: Cluster, host: Host) -> list[int]:
    """Every port of monitoring on a host."""
    settings = cluster.settings
    pages = [settings.prometheus_port, *([settings.grafana_port] if settings.grafana else [])]
    return [*exporter_ports(cluster, host), *(pages if host is cluster.monitoring else [])]


def metrics_of(service: PlannedService) -> Metrics:
    """The figures of a service's engine."""
    return engines.get(service.engine, service.engine_version).metrics


def targets(
    cluster: Cluster, services: Sequence[PlannedService], proxy: Proxy | None = None
) -> dict[str, list[Group]]:
    """What is scraped, by file below `targets/`: one for each replica's engine, one for each host."""
    files: dict[str, list[Group]] = {}
    for service in services:
        for replica in service.replicas if _publishes(cluster, service) else ():
            head = replica.nodes[0]  # it alone answers for the whole replica
            files[f"engine-{_key_name(service)}-{replica.index}.json"] = [
                _group(
                    cluster,
                    f"{head.address}:{replica.engine_port}",
                    service=service.served_model_name,
                    replica=str(replica.index),
                    rank="0",
                    host=head.host,
                    engine=service.engine,
                    __metrics_path__=metrics_of(service).path,
                )
            ]
        if service.routers:
            files[f"router-{_key_name(service)}.json"] = [
                _group(
                    cluster,
                    f"{router.address}:{router.metrics_port}",
                    service=service.served_model_name,
                    host=router.host,
                )
                for router in service.routers
            ]
    for host in cluster.nodes:
        for kind, port in zip(("node", "gpu"), exporter_ports(cluster, host), strict=False):
            files[f"{kind}-{host.name}.json"] = [_group(cluster, f"{host.address}:{port}", host=host.name)]
    if proxy:
        # Two pages of figures; the label `part` keeps them apart.
        parts = ["metrics", *(["certificate"] if proxy.tls != "none" else [])]
        target = f"{proxy.metrics_address}:{proxy.metrics_port}"
        files["proxy.json"] = [
            _group(cluster, target, host=proxy.host, part=part, __metrics_path__=f"/{part}") for part in parts
        ]
    return files


def _group(cluster: Cluster, target: str, **labels: str) -> Group:
    return {"targets": [target], "labels": {"cluster": cluster.name, **labels}}


def _key_name(service: PlannedService) -> str:
    """Of the file with its key, and in names of files with its targets."""
    return service.name or "only"


def scraped_ports(
    cluster: Cluster, services: Sequence[PlannedService], proxy: Proxy | None, host: Host
) -> list[int]:
    """Ports of a host that are scraped."""
    groups = [group for groups in targets(cluster, services, proxy).values() for group in groups]
    places = {target.rpartition(":")[::2] for group in groups for target in group["targets"]}
    return sorted(int(port) for address, port in places if address == host.address)


def configuration(cluster: Cluster, services: Sequence[PlannedService]) -> dict[str, Any]:
    """prometheus.yml."""
    keyed = [_key_name(service) for service in services if metrics_of(service).needs_key]
    others = [_key_name(service) for service in services if not metrics_of(service).needs_key]
    jobs = [_job(f"engine-{name}", [f"engine-{name}-*.json"], key=f"{KEYS}/{name}") for name in keyed]
    if others:
        jobs.append(_job("engine", [f"engine-{name}-*.json" for name in others]))
    for job in jobs:
        job["metric_relabel_configs"] = _own_names(services)
    itself = _group(cluster, f"127.0.0.1:{cluster.settings.prometheus_port}")
    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": [f"{CONFIG}/rules/*.yml"],
        "scrape_configs": [
            *jobs,
            _job("router", ["router-*.json"]),
            _job("proxy", ["proxy.json"]),
            _job("node", ["node-*.json"]),
            _job("gpu", ["gpu-*.json"]),
            {"job_name": "prometheus", "static_configs": [itself]} | _LIMITS,
        ],
    }


def _own_names(services: Sequence[PlannedService]) -> list[dict[str, Any]]:
    """To a Prometheus that asks for OpenMetrics, engines write `_` in place of the `:` of their names."""
    names = {metrics_of(service).running.name for service in services}
    return [
        {
            "source_labels": ["__name__"],
            "regex": f"{prefix}_(.+)",
            "target_label": "__name__",
            "replacement": f"{prefix}:$1",
        }
        for prefix in sorted({name.partition(":")[0] for name in names if ":" in name})
    ]


def _job(name: str, files: Iterable[str], *, key: str | None = None) -> dict[str, Any]:
    """`key`: the file with what the targets ask for."""
    places = [{"files": [f"{CONFIG}/targets/{file}" for file in files]}]
    job: dict[str, Any] = {"job_name": name, "file_sd_configs": places} | _LIMITS
    return job | ({"authorization": {"credentials_file": key}} if key else {})


def _publishes(cluster: Cluster, service: PlannedService) -> bool:
    engine = engines.get(service.engine, service.engine_version)
    arguments = cluster.service(service.name).settings.engine_args
    return engine.publishes(engine.check_arguments(arguments).values)


def _has_gpus(cluster: Cluster, host: Host) -> bool:
    return any(
        service.settings.engine_device == "cuda" and host in service.hosts for service in cluster.services
    )


def _program(
    host: Host, url: str, path: str, source: Literal["registry", "build"] = "registry", **container: Any
) -> MonitoringContainer:
    """`container`: fields of it beside those that all have."""
    return MonitoringContainer(
        host=host.name,
        url=url,
        path=path,
        image_source=source,
        container=Container(**container, cap_drop=["ALL"], restart_policy="unless-stopped"),
    )


def _prometheus(host: Host, settings: ClusterSettings) -> MonitoringContainer:
    built = settings.prometheus_image_source == "build"
    address = f"127.0.0.1:{settings.prometheus_port}"
    return _program(
        host,
        f"http://{address}",
        "/-/ready",
        settings.prometheus_image_source,
        name=PROMETHEUS,
        image=settings.prometheus_image or (BUILT_IMAGE if built else PROMETHEUS_IMAGE),
        entrypoint="prometheus" if built else None,
        user=f"{PROMETHEUS_USER}:{PROMETHEUS_GROUP}",
        command=[
            f"--config.file={CONFIG}/prometheus.yml",
            f"--storage.tsdb.path={DATA}",
            f"--storage.tsdb.retention.time={settings.prometheus_retention}",
            f"--storage.tsdb.retention.size={settings.prometheus_size}",
            f"--web.listen-address={address}",
            f"--web.console.templates={CONFIG}/consoles",
            f"--web.console.libraries={CONFIG}/consoles",
        ],
        volumes=[f"{CONFIG}:{CONFIG}:ro", f"{KEYS}:{KEYS}:ro", f"{DATA}:{DATA}"],
    )


def _grafana(host: Host, settings: ClusterSettings) -> MonitoringContainer:
    return _program(
        host,
        f"http://{host.address}:{settings.grafana_port}",
        "/api/health",
        name=GRAFANA,
        image=settings.grafana_image or GRAFANA_IMAGE,
        environment={
            "GF_SERVER_HTTP_ADDR": host.address,
            "GF_SERVER_HTTP_PORT": str(settings.grafana_port),
            "GF_SECURITY_ADMIN_PASSWORD__FILE": f"{GRAFANA_SECRETS}/admin",
            "GF_AUTH_ANONYMOUS_ENABLED": "false",
            "GF_USERS_ALLOW_SIGN_UP": "false",
            "GF_ANALYTICS_REPORTING_ENABLED": "false",
            "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
            "GF_PATHS_PROVISIONING": f"{GRAFANA_CONFIG}/provisioning",
            "GF_PATHS_DATA": GRAFANA_DATA,
        },
        volumes=[
            f"{GRAFANA_CONFIG}:{GRAFANA_CONFIG}:ro",
            f"{GRAFANA_SECRETS}:{GRAFANA_SECRETS}:ro",
            f"{GRAFANA_DATA}:{GRAFANA_DATA}",
        ],
    )


def _exporters(cluster: Cluster, host: Host) -> Iterator[MonitoringContainer]:
    settings = cluster.settings
    built = settings.prometheus_image_source == "build"
    node, *gpus = (f"{host.address}:{port}" for port in exporter_ports(cluster, host))
    yield _program(
        host,
        f"http://{node}",
        "/metrics",
        settings.prometheus_image_source,
        name=NODE_EXPORTER,
        image=settings.node_exporter_image or (BUILT_IMAGE if built else NODE_EXPORTER_IMAGE),
        entrypoint="prometheus-node-exporter" if built else None,
        command=[
            f"--web.listen-address={node}",
            "--path.procfs=/host/proc",
            "--path.sysfs=/host/sys",
            "--path.rootfs=/host",
            f"--collector.textfile.directory=/host{TEXTFILES}",
        ],
        # As a slave, so that a disk can be unmounted while this runs.
        volumes=["/:/host:ro,rslave"],
    )
    for gpu in gpus:
        yield _program(
            host,
            f"http://{gpu}",
            "/health",
            name=DCGM_EXPORTER,
            image=settings.dcgm_exporter_image or settings.mirrored(DCGM_EXPORTER_IMAGE),
            environment={"DCGM_EXPORTER_LISTEN": gpu},
            **gpu_options(settings.container_runtime, None),
        )
