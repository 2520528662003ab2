"""Alerts, recording rules, dashboards, the console page: Prometheus takes them, and every metric exists."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from clusters import catalogued, read
from headfirst.control.deployment.running.role_vars.monitoring import (
    grafana_files,
    prometheus_files,
)
from headfirst.control.paths import cache_dir
from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan import metric_rules
from headfirst.decide.plan.types import Plan

DATA = Path(__file__).parent / "data"
INVENTORY = """\
[head]
node1 ansible_host=192.0.2.1
[workers]
node2 ansible_host=192.0.2.2
[monitoring]
node1
[all:vars]
cluster_name=lab
gpus=8
gpu=H100-80G
nic=eth0
hca=none
model_source=huggingface
model=deepseek-ai/DeepSeek-R1-Distill-Llama-70B
served_model_name=demo
"""
# Of PromQL; whatever else is a name in an expression is a metric.
WORDS = {
    *("abs", "and", "avg", "by", "changes", "delta", "group_left", "group_right", "histogram_quantile"),
    *("label_values", "max", "max_over_time", "min", "min_over_time", "on", "or", "rate", "sort_desc", "sum"),
    *("time", "timestamp", "unless", "vector", "without"),
}
QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
LABELS = re.compile(r"\{[^}]*\}|\b(?:by|without|on|group_left|group_right)\s*\([^)]*\)|\[[^\]]*\]")
NAME = re.compile(r"(?<![\w:.])[a-zA-Z_][\w:]*")


def names(expression: str) -> set[str]:
    """The metrics in an expression."""
    return set(NAME.findall(LABELS.sub("", QUOTED.sub("", expression)))) - WORDS


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Cluster, Plan]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    cluster = read(tmp_path, INVENTORY)
    return cluster, catalogued(cluster)


@pytest.fixture(scope="session")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Prometheus' own checker: that of this machine, or of Debian's package, which is not installed."""
    if found := shutil.which("promtool"):
        return found
    kept = cache_dir("tests") / "promtool"
    if not kept.exists():
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            pytest.skip("needs promtool")
        folder = tmp_path_factory.mktemp("promtool")
        done = subprocess.run(
            ["apt-get", "download", "prometheus"], cwd=folder, capture_output=True, text=True, check=False
        )
        packages = [*folder.glob("*.deb")]
        if not packages:
            pytest.skip(f"apt-get has no package prometheus: {done.stderr.strip()}")
        subprocess.run(["dpkg-deb", "--extract", str(packages[0]), str(folder)], check=True)
        new = kept.with_suffix(".new")
        shutil.copy(folder / "usr" / "bin" / "promtool", new)
        new.replace(kept)
    return str(kept)


def recorded(name: str) -> set[str]:
    """A list of metric names, with its source in the first line."""
    lines = (DATA / "metrics" / f"{name}.txt").read_text().splitlines()
    return {line for line in lines if not line.startswith("#")}


def known(lab: tuple[Cluster, Plan]) -> set[str]:
    """Every metric that exists; those of engines are checked by the test below, and on the lab."""
    infiniband = {f"node_infiniband_{name}" for name in recorded("node-exporter-infiniband")}
    own = {rule["record"] for rule in figures(lab) + alerts() if "record" in rule}
    return own | infiniband | recorded("node-exporter") | recorded("dcgm-exporter") | recorded("other")


def figures(lab: tuple[Cluster, Plan]) -> list[dict[str, Any]]:
    groups = metric_rules.rules(lab[0], lab[1].services)["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    text = (Path(__file__).parents[2] / "templates" / "monitoring" / "rules" / "alerts.yml").read_text()
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def test_prometheus_takes_the_files(lab: tuple[Cluster, Plan], promtool: str, tmp_path: Path) -> None:
    for name, text in prometheus_files(*lab).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("/etc/headfirst/prometheus", str(tmp_path)))
    (tmp_path / "targets").mkdir()
    checked = subprocess.run(
        [promtool, "check", "config", str(tmp_path / "prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    shutil.copy(DATA / "alert_tests.yml", tmp_path / "rules" / "tests.yml")
    tested = subprocess.run(
        [promtool, "test", "rules", "tests.yml"],
        cwd=tmp_path / "rules",
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("name", engines.names())
def test_prometheus_takes_the_rules_of_every_engine(
    name: str, lab: tuple[Cluster, Plan], promtool: str, tmp_path: Path
) -> None:
    service = (
        lab[1].services[0].model_copy(update={"engine": name, "engine_version": engines.get(name).version})
    )
    rules = tmp_path / "figures.yml"
    rules.write_text(yaml.safe_dump(metric_rules.rules(lab[0], [service])))
    checked = subprocess.run([promtool, "check", "rules", str(rules)], capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    used = {found for rule in figures((lab[0], lab[1].model_copy(update={"services": [service]})))
            for found in names(rule["expr"])}  # fmt: skip
    assert {found.partition(":")[0] for found in used} == {name}


def test_every_metric_of_an_alert_exists(lab: tuple[Cluster, Plan]) -> None:
    assert alerts()
    for rule in alerts():
        assert names(rule["expr"]) <= known(lab), rule


def expressions(document: Any) -> Iterator[str]:
    for panel in document["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in document["templating"]["list"]:
        yield variable["query"]["query"].partition("(")[2].partition(",")[0]


def test_every_metric_of_a_dashboard_exists(lab: tuple[Cluster, Plan]) -> None:
    assert lab[1].monitoring
    pages = {
        name: json.loads(text)
        for name, text in grafana_files(lab[1].monitoring).items()
        if name.startswith("dashboards/")
    }
    assert len(pages) == 3
    assert len({page["uid"] for page in pages.values()}) == 3
    for name, page in pages.items():
        for expression in expressions(page):
            assert names(expression), (name, expression)
            assert names(expression) <= known(lab), (name, expression)


def test_every_metric_of_the_console_page_exists(lab: tuple[Cluster, Plan]) -> None:
    page = prometheus_files(*lab)["consoles/headfirst.html"]
    asked = re.findall(r'(?:query|printf) "([^"]*%s[^"]*\}|[^"]*\})', page)
    found = {name for text in asked for name in names(text)} | set(re.findall(r"\(([a-z]\w+)\{", page))
    assert {"headfirst:running", "node_load1", "up", "ALERTS"} <= found
    assert found <= known(lab)


def test_a_dashboard_names_the_data_source(lab: tuple[Cluster, Plan]) -> None:
    assert lab[1].monitoring
    files = grafana_files(lab[1].monitoring)
    source = yaml.safe_load(files["provisioning/datasources/prometheus.yml"])["datasources"][0]
    assert source["url"] == "http://127.0.0.1:9090"
    for name, text in files.items():
        if name.startswith("dashboards/"):
            used = {panel["datasource"]["uid"] for panel in json.loads(text)["panels"]}
            assert used == {source["uid"]}
