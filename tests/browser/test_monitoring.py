"""A real Prometheus beside the lab's real engine: what it scrapes, its rules, and its page in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from headfirst.common import metrics
from headfirst.common.metrics import Metrics, Series
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.verbs.service import watch
from headfirst.control.inventory.inventory import load
from headfirst.control.live.ssh_access.tunnel import tunnel
from headfirst.decide import engines
from headfirst.decide.cluster.settings import ClusterSettings
from playwright.sync_api import Page, expect
from readme_lab import INVENTORY, Service, deploy, on_node, succeeds
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

PORT = ClusterSettings().prometheus_port
pytestmark = pytest.mark.browser

ENGINE = engines.get("sglang").metrics
MONITORING = """
[monitoring]
node1

[all:vars]
prometheus_image_source=build
grafana=false
"""


@pytest.fixture(scope="module")
def more(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A second inventory, which adds monitoring to the README's lab; its stage alone is run."""
    path = tmp_path_factory.mktemp("monitoring") / "monitoring.ini"
    path.write_text(MONITORING)
    done = deploy("up", options=["-i", str(path), "--json", "-t", "monitoring"])
    try:
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr
        yield path
    finally:
        for node in ("node1", "node2"):
            on_node(node, "docker rm --force headfirst-prometheus headfirst-node-exporter")
            on_node(node, "rm -rf /etc/headfirst/prometheus* /var/lib/headfirst/prometheus")


@pytest.fixture(scope="module")
def prometheus(more: Path) -> Iterator[str]:
    """Its address on this machine."""
    cluster = load([INVENTORY, more])
    with tunnel(host_access(cluster)["node1"], f"http://127.0.0.1:{PORT}") as url:
        yield url


@pytest.fixture(scope="module")
def busy(service: Service, more: Path) -> None:
    """The engine has answered once."""
    answer = httpx.post(
        f"{service.api}/v1/chat/completions",
        headers={"Authorization": f"Bearer {service.api_key}"},
        json={"model": service.model, "messages": [{"role": "user", "content": "Hello!"}], "stream": True},
        timeout=120,
    )
    assert answer.status_code == 200


@retry(
    retry=retry_if_exception_type(AssertionError), stop=stop_after_delay(90), wait=wait_fixed(2), reraise=True
)
def found(url: str, query: str) -> list[dict[str, Any]]:
    """The samples of a query, when there are any."""
    answer = httpx.get(f"{url}/api/v1/query", params={"query": query}, timeout=30).json()
    assert answer["data"]["result"], query
    samples: list[dict[str, Any]] = answer["data"]["result"]
    return samples


def named(of: Metrics) -> set[str]:
    """Every name of the contract, as samples have it."""
    plain: list[Series] = [of.running, of.queued, of.cache_usage, of.generated_tokens, of.prompt_tokens]
    histograms = [of.first_token, of.output_token, of.request]
    parts = {f"{one.name}_{part}" for one in histograms for part in ("bucket", "sum", "count")}
    return {one.name for one in (*plain, *of.progress)} | parts | {of.throughput}


def test_the_engine_publishes_every_name_of_the_contract(service: Service, busy: None) -> None:
    answer = httpx.get(service.api + ENGINE.path, timeout=30)
    assert answer.status_code == 200  # without a key
    published = {sample.name for sample in metrics.samples(answer.text)}
    assert named(ENGINE) <= published
    labels = {key for sample in metrics.samples(answer.text) for key in sample.labels}
    assert ENGINE.model_label in labels
    figures = metrics.read(answer.text, ENGINE)
    assert figures
    assert figures.generated_tokens > 0
    assert figures.progress >= figures.generated_tokens + figures.prompt_tokens


def test_status_reads_the_same_figures(busy: None) -> None:
    load = json.loads(succeeds("status", options=["--json"]))["replicas"][0]["engine"]["load"]
    assert load["running"] >= 0
    assert 0 <= load["cache_usage"] <= 1
    assert "tokens/s generated" in deploy("status").stdout


def test_top_reads_replicas_and_ranks(busy: None) -> None:
    with watch(load([INVENTORY])) as source:
        source.read()
        found = source.read()
    (replica,) = found.replicas
    assert replica.problem is None
    assert replica.load
    assert [(rank.host, rank.state) for rank in found.ranks] == [("node1", "running"), ("node2", "running")]
    for rank in found.ranks:
        assert rank.cpus is not None
        assert rank.memory_bytes
        assert rank.memory_bytes > 100 << 20


def test_every_target_is_scraped(prometheus: str) -> None:
    @retry(retry=retry_if_exception_type(AssertionError), stop=stop_after_delay(60), wait=wait_fixed(2))
    def all_up() -> None:
        answer = httpx.get(f"{prometheus}/api/v1/targets", timeout=30).json()
        targets = answer["data"]["activeTargets"]
        health = {(one["labels"]["job"], one["labels"].get("host")): one["health"] for one in targets}
        assert health == {
            ("engine", "node1"): "up",
            ("node", "node1"): "up",
            ("node", "node2"): "up",
            ("prometheus", None): "up",
        }

    all_up()


def test_rules_give_the_figures_of_the_replica(prometheus: str, busy: None) -> None:
    (sample,) = found(prometheus, 'headfirst:running{service="headfirst-demo"}')
    assert sample["metric"] == {
        "__name__": "headfirst:running",
        "cluster": "lab",
        "service": "headfirst-demo",
        "replica": "0",
        "engine": "sglang",
    }
    assert {sample["metric"]["host"] for sample in found(prometheus, "headfirst:rank")} == {"node1", "node2"}
    rules = httpx.get(f"{prometheus}/api/v1/rules", timeout=30).json()["data"]["groups"]
    assert {rule["health"] for group in rules for rule in group["rules"]} == {"ok"}


def test_prometheus_listens_on_loopback_alone(prometheus: str) -> None:
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://10.213.0.11:{PORT}", timeout=5)


def test_its_page_shows_the_replica(prometheus: str, busy: None, page: Page) -> None:
    found(prometheus, 'headfirst:kv_cache_usage{service="headfirst-demo"}')
    page.goto(f"{prometheus}/consoles/headfirst.html")
    row = page.locator("#replicas tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("headfirst-demo/0")
    expect(row.locator("td").nth(2)).to_have_text("yes")
    expect(row.locator(".running")).to_have_text("0")
    expect(row.locator(".cache")).to_contain_text("%")
    expect(page.locator("#hosts tbody tr")).to_have_count(2)
    expect(page.locator("#hosts .memory").first).to_contain_text("GiB")
