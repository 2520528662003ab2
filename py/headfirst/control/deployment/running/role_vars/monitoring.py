"""The plan's monitoring as variables of `playbooks/monitoring.yml`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from headfirst.collection import data_dir
from headfirst.control.deployment.running.artifacts import image_source
from headfirst.control.deployment.running.role_vars import HostVars, Up
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan import metric_rules, monitoring
from headfirst.decide.plan.dashboards import dashboard
from headfirst.decide.plan.types import Monitoring, MonitoringContainer, Plan

Files = dict[str, str]

# Of Grafana's image: its user, whose group is root's.
GRAFANA_USER, GRAFANA_GROUP = 472, 0
CONFIG_LABEL = "headfirst.configuration"


def monitoring_vars(up: Up) -> HostVars:
    """Variables per host; none without a group [monitoring]."""
    planned = up.plan.monitoring
    if planned is None:
        return {}
    return {
        host.name: _host(up, planned, host.name)
        for host in up.cluster.hosts
        if host.name == planned.host or host in up.cluster.nodes
    }


def monitoring_stop_vars(cluster: Cluster) -> HostVars:
    """Hosts of `playbooks/stop_monitoring.yml`."""
    return {host.name: {} for host in cluster.hosts} if cluster.monitoring else {}


def prometheus_files(cluster: Cluster, plan: Plan) -> Files:
    """Everything below monitoring.CONFIG but the targets: what Prometheus reads when it starts."""
    template = data_dir("templates") / "monitoring"
    return {
        "prometheus.yml": _yaml(monitoring.configuration(cluster, plan.services)),
        "rules/figures.yml": _yaml(metric_rules.rules(cluster, plan.services)),
        **_folder(template, "rules/alerts.yml", "consoles/headfirst.html"),
    }


def grafana_files(planned: Monitoring) -> Files:
    """Everything below monitoring.GRAFANA_CONFIG: data source and dashboards."""
    import jinja2  # only a cluster with monitoring waits for it

    template = data_dir("templates") / "monitoring"
    source = "provisioning/datasources/prometheus.yml"
    text = (template / f"{source}.j2").read_text(encoding="utf-8")
    pages = yaml.safe_load((template / "dashboards.yml").read_text(encoding="utf-8"))
    return {
        source: jinja2.Template(text).render(url=planned.prometheus_url),
        **_folder(template, "provisioning/dashboards/headfirst.yml"),
        **{f"dashboards/{name}.json": _json(dashboard(name, page)) for name, page in pages.items()},
    }


def _host(up: Up, planned: Monitoring, name: str) -> dict[str, Any]:
    cluster, plan, secrets = up.cluster, up.plan, up.secrets
    containers = [monitor for monitor in planned.containers if monitor.host == name]
    folders: list[dict[str, Any]] = [{"path": monitoring.TEXTFILES, "owner": 0, "mode": "0755"}]
    trees: list[dict[str, Any]] = []
    hidden: list[dict[str, Any]] = []
    labels: dict[str, str] = {}
    if name == planned.host:
        configuration = prometheus_files(cluster, plan)
        targets = monitoring.targets(cluster, plan.services, plan.proxy)
        scraped = {f"targets/{file}": _json(groups) for file, groups in targets.items()}
        folders.append({"path": monitoring.DATA, "owner": monitoring.PROMETHEUS_USER, "mode": "0700"})
        trees.append({"path": monitoring.CONFIG, "files": configuration | scraped})
        keys = {
            service.name or "only": secrets.api_key(service.name)
            for service in plan.services
            if monitoring.metrics_of(service).needs_key
        }
        hidden.append({"path": monitoring.KEYS, "files": keys, "group": monitoring.PROMETHEUS_GROUP})
        labels[monitoring.PROMETHEUS] = _digest(configuration)
    if name == planned.host and planned.grafana_url:
        pages = grafana_files(planned)
        folders.append({"path": monitoring.GRAFANA_DATA, "owner": GRAFANA_USER, "mode": "0700"})
        trees.append({"path": monitoring.GRAFANA_CONFIG, "files": pages})
        password = {"admin": secrets.grafana_admin_password or ""}
        hidden.append({"path": monitoring.GRAFANA_SECRETS, "files": password, "group": GRAFANA_GROUP})
        labels[monitoring.GRAFANA] = _digest(pages)
    return {
        "headfirst_monitoring_images": [
            {"name": image} | image_source(up.files.images.get(image))
            for image in dict.fromkeys(monitor.container.image for monitor in containers)
        ],
        "monitoring_containers": [
            _container(monitor, labels.get(monitor.container.name)) for monitor in containers
        ],
        "monitoring_folders": folders,
        "monitoring_trees": trees,
        "monitoring_secrets": hidden,
    }


def _container(monitor: MonitoringContainer, configuration: str | None) -> dict[str, Any]:
    """With the digest of its files a container is made again when they change."""
    spec = monitor.container.module_spec()
    if configuration:
        spec["labels"] = {**spec.get("labels", {}), CONFIG_LABEL: configuration}
    return {"name": monitor.container.name, "spec": spec, "url": monitor.url, "path": monitor.path}


def _folder(folder: Path, *names: str) -> Files:
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(document), sort_keys=False, width=4096)


def _json(document: Any) -> str:
    return json.dumps(document, indent=1) + "\n"


def _digest(files: Files) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:16]
