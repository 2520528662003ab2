"""The group [monitoring]: what runs where, what listens at which address, what is scraped."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from clusters import catalogued, read
from headfirst.common.errors import InputError
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.artifacts import Artifacts, Tarball
from headfirst.control.deployment.running.phases import of_down, of_up
from headfirst.control.deployment.running.role_vars import Up
from headfirst.control.deployment.running.role_vars.hosts import check_vars, hardware_vars
from headfirst.control.deployment.running.role_vars.monitoring import monitoring_vars
from headfirst.decide.cluster import ports
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan import monitoring
from headfirst.decide.plan.types import Plan
from run_variables import up_of

pytestmark = pytest.mark.usefixtures("no_hub")

ENGINE = ServiceSettings().engine_port
SECRETS = Secrets(grafana_admin_password="grafana-password")
FILES = Artifacts(Path("node.whl"))
HOSTS = "".join(f"node{number} ansible_host=192.0.2.{number}\n" for number in range(1, 5))
COMMON = "[all:vars]\ncluster_name=lab\ngpus=8\ngpu=H100-80G\nnic=eth0\nhca=none\nmodel_source=huggingface\n"
SERVICES = (
    f"[chat]\n{HOSTS}\n[chat:vars]\nmodel=deepseek-ai/DeepSeek-R1-Distill-Llama-70B\nreplicas={{replicas}}\n"
    "[small]\nnode5 ansible_host=192.0.2.5\n[small:vars]\nmodel=Qwen/Qwen3-0.6B\nengine={engine}\n"
)

WATCHED = "[monitoring]\nwatcher ansible_host=192.0.2.9\n"


def made(
    folder: Path, text: str = "", *, watched: str = WATCHED, replicas: int = 2, engine: str = "vllm"
) -> tuple[Cluster, Plan]:
    services = SERVICES.format(replicas=replicas, engine=engine)
    cluster = read(folder, f"{services}{watched}{COMMON}{text}")
    return cluster, catalogued(cluster)


def test_without_the_group_there_is_nothing(tmp_path: Path) -> None:
    cluster, plan = made(tmp_path, watched="")
    assert "monitoring" not in json.loads(plan.model_dump_json())
    assert monitoring_vars(up_of(cluster, plan)) == {}
    assert not [phase for phase in of_down(cluster) if "monitoring" in phase.playbook]


def test_what_runs_where(tmp_path: Path) -> None:
    cluster, plan = made(tmp_path)
    assert plan.monitoring
    found = {(one.host, one.container.name.removeprefix("headfirst-")) for one in plan.monitoring.containers}
    ranks = {(f"node{n}", kind) for n in range(1, 6) for kind in ("node-exporter", "dcgm-exporter")}
    assert found == {("watcher", "prometheus"), ("watcher", "grafana")} | ranks
    secrets = SECRETS.with_keys(["chat", "small"])
    assert [phase.playbook for phase in of_up(cluster, plan, secrets, FILES)][-1] == "monitoring.yml"
    assert of_down(cluster)[0].playbook == "stop_monitoring.yml"


def test_nothing_listens_wider_than_it_must(tmp_path: Path) -> None:
    cluster, plan = made(tmp_path)
    assert plan.monitoring
    for one in plan.monitoring.containers:
        container = one.container
        text = json.dumps(container.module_spec())
        assert "0.0.0.0" not in text
        assert container.cap_drop == ["ALL"]
        if container.name == monitoring.PROMETHEUS:
            assert "--web.listen-address=127.0.0.1:9090" in container.command
        elif container.name == monitoring.NODE_EXPORTER:
            assert f"--web.listen-address=192.0.2.{one.host[-1]}:9100" in container.command
        elif container.name == monitoring.DCGM_EXPORTER:
            assert container.environment["DCGM_EXPORTER_LISTEN"] == f"192.0.2.{one.host[-1]}:9400"
        else:
            assert container.environment["GF_SERVER_HTTP_ADDR"] == "192.0.2.9"
            assert container.environment["GF_AUTH_ANONYMOUS_ENABLED"] == "false"
    tuned = hardware_vars(cluster, plan)
    for host in cluster.ranks:
        assert {"9100", "9400"} <= set(tuned[host.name]["host_tuning_rendezvous_ports"])
        assert "192.0.2.9" in tuned[host.name]["host_tuning_peers"]
    assert set(check_vars(cluster, plan)["watcher"]["check_ports"]) == {9090, 3000}


def admitted(cluster: Cluster, plan: Plan) -> dict[str, dict[str, list[int]]]:
    return {
        host: variables.get("host_tuning_monitors", {})
        for host, variables in hardware_vars(cluster, plan).items()
    }


def test_a_prometheus_of_ones_own_reaches_metrics_alone(tmp_path: Path) -> None:
    """Behind the proxy, where the engines' ports are closed to everybody else."""
    cluster, plan = made(tmp_path, "monitoring_from=192.0.2.40,10.8.0.0/16\nproxy=true\n")
    found = admitted(cluster, plan)
    assert {tuple(networks) for networks in found.values() if networks} == {("192.0.2.40/32", "10.8.0.0/16")}
    ports = {host: networks["10.8.0.0/16"] for host, networks in found.items() if networks}
    assert plan.proxy
    proxy, router = plan.proxy.metrics_port, plan.services[0].routers[0].metrics_port
    assert ports == {
        "node1": sorted({ENGINE, 9100, 9400, router, proxy}),
        "node2": [9100, 9400],  # rank 1 has no metrics
        "node3": [9100, 9400, ENGINE],
        "node4": [9100, 9400],
        "node5": [9100, 9400, ENGINE],
    }
    cluster, plan = made(tmp_path, "monitoring_from=192.0.2.40\n", watched="")
    assert admitted(cluster, plan)["node2"] == {"192.0.2.40/32": []}
    assert not any(admitted(*made(tmp_path)).values())


@pytest.mark.parametrize("value", ["10.8.0.1/16", "watcher", "2001:db8::1", "[]x"])
def test_monitoring_from_takes_ipv4_addresses_and_networks(tmp_path: Path, value: str) -> None:
    with pytest.raises(InputError, match="monitoring_from"):
        made(tmp_path, f"monitoring_from={value}\n")


def test_exporters_take_ports_only_where_they_run(tmp_path: Path) -> None:
    """On the nodes of a cluster with monitoring; elsewhere the same numbers are free."""
    exporters = {"node_exporter_port", "dcgm_exporter_port"}
    cluster, _ = made(tmp_path)
    assert cluster.monitoring
    assert exporters <= {use.name for use in ports.of_host(cluster, cluster.ranks[0])}
    assert not exporters & {use.name for use in ports.of_host(cluster, cluster.monitoring)}
    unwatched, _ = made(tmp_path, watched="")
    assert not exporters & {use.name for use in ports.of_host(unwatched, unwatched.ranks[0])}


def test_targets_follow_replicas(tmp_path: Path) -> None:
    cluster, plan = made(tmp_path, replicas=2)
    found = monitoring.targets(cluster, plan.services)
    (second,) = found["engine-chat-1.json"]
    replica = plan.services[0].replicas[1]
    assert second == {
        "targets": [f"{replica.nodes[0].address}:{replica.engine_port}"],
        "labels": {
            "cluster": "lab",
            "service": "DeepSeek-R1-Distill-Llama-70B",
            "replica": "1",
            "rank": "0",
            "host": replica.nodes[0].host,
            "engine": "sglang",
            "__metrics_path__": "/metrics",
        },
    }
    assert found["node-node1.json"] == [
        {"targets": ["192.0.2.1:9100"], "labels": {"cluster": "lab", "host": "node1"}}
    ]
    fewer = monitoring.targets(*_services(made(tmp_path, replicas=1)))
    # One replica needs no router.
    assert set(found) - set(fewer) == {"engine-chat-1.json", "router-chat.json"}
    router = plan.services[0].routers[0]
    assert found["router-chat.json"][0]["targets"] == [f"{router.address}:{router.metrics_port}"]


def _services(found: tuple[Cluster, Plan]) -> tuple[Cluster, Any]:
    return found[0], found[1].services


def test_new_targets_do_not_restart_prometheus(tmp_path: Path) -> None:
    def digest(replicas: int, text: str = "") -> str:
        cluster, plan = made(tmp_path, text, replicas=replicas)
        up = up_of(cluster, plan, SECRETS.with_keys(["chat", "small"]))
        (one, _) = monitoring_vars(up)["watcher"]["monitoring_containers"]
        return str(one["spec"]["labels"]["headfirst.configuration"])

    # The list of ranks is a rule; their targets are not.
    assert digest(2) == digest(2, "node_exporter_port=9101\n")
    assert digest(2) != digest(1)


def test_no_target_can_send_without_an_end(tmp_path: Path) -> None:
    cluster, plan = made(tmp_path, "tls=local-ca\n", engine="lmdeploy")
    jobs = monitoring.configuration(cluster, plan.services)["scrape_configs"]
    assert len(jobs) >= 6
    for job in jobs:
        assert 0 < job["sample_limit"] <= 100_000
        assert job["body_size_limit"] == "32MB"


def test_a_key_is_given_where_the_engine_asks_for_it(tmp_path: Path) -> None:
    cluster, plan = made(tmp_path, engine="lmdeploy")
    jobs = monitoring.configuration(cluster, plan.services)["scrape_configs"]
    keyed = {job["job_name"]: job["authorization"] for job in jobs if "authorization" in job}
    assert keyed == {"engine-small": {"credentials_file": "/etc/headfirst/prometheus-keys/small"}}
    secrets = SECRETS.with_keys(["chat", "small"])
    given = monitoring_vars(up_of(cluster, plan, secrets))["watcher"]
    assert given["monitoring_secrets"][0] == {
        "path": "/etc/headfirst/prometheus-keys",
        "files": {"small": secrets.api_key("small")},
        "group": 64797,
    }
    # The exporter, which sees the files of the host, is in another group.
    users = {one["name"]: one["spec"].get("user") for one in given["monitoring_containers"]}
    assert users["headfirst-prometheus"] == "65534:64797"
    assert all("64797" not in str(user) for name, user in users.items() if name != "headfirst-prometheus")
    for name in ("headfirst_monitoring_images", "monitoring_containers", "monitoring_trees"):
        shown = json.dumps(given[name])
        assert not any(secret in shown for secret in secrets.values())


def test_an_image_that_is_built_here(tmp_path: Path) -> None:
    cluster, plan = made(tmp_path, "prometheus_image_source=build\ngrafana=false\n")
    tarball = Tarball(Path("/images/prometheus.tar"), on_node=True)
    files = Artifacts(Path("node.whl"), {monitoring.BUILT_IMAGE: tarball})
    given = monitoring_vars(Up(cluster, plan, SECRETS, files))
    assert given["watcher"]["headfirst_monitoring_images"] == [
        {
            "name": monitoring.BUILT_IMAGE,
            "source": "tarball",
            "tarball": "/images/prometheus.tar",
            "tarball_remote": True,
        }
    ]
    names = [image["name"] for image in given["node1"]["headfirst_monitoring_images"]]
    assert names == [monitoring.BUILT_IMAGE, monitoring.DCGM_EXPORTER_IMAGE]
    assert [one["name"] for one in given["watcher"]["monitoring_containers"]] == [monitoring.PROMETHEUS]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("prometheus_retention=two weeks\n", "prometheus_retention"),
        ("prometheus_size=10\n", "prometheus_size"),
        ("grafana_port=9090\n", "grafana_port and prometheus_port have the same port 9090"),
        (f"node_exporter_port={ENGINE}\n", f"have the same port {ENGINE}"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(InputError) as raised:
        made(tmp_path, text)
    assert what in raised.value.what


def test_one_host_watches(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"group \[monitoring\] has 2 hosts"):
        made(tmp_path, watched="[monitoring]\nnode1\nnode2\n")


def test_a_password_of_grafana_is_kept() -> None:
    first = Secrets().with_grafana_password()
    assert first.grafana_admin_password
    assert first.with_grafana_password() == first
    assert first.rotated().grafana_admin_password == first.grafana_admin_password
    assert first.grafana_admin_password in first.values()


@pytest.mark.parametrize(
    ("settings", "parts"),
    [("", []), ("proxy=true\n", ["metrics"]), ("tls=local-ca\n", ["metrics", "certificate"])],
)
def test_the_proxy_is_scraped_where_there_is_one(tmp_path: Path, settings: str, parts: list[str]) -> None:
    cluster, plan = made(tmp_path, settings)
    groups = monitoring.targets(cluster, plan.services, plan.proxy).get("proxy.json", [])
    assert [group["labels"]["__metrics_path__"] for group in groups] == [f"/{part}" for part in parts]
    where = plan.proxy and f"{plan.proxy.metrics_address}:{plan.proxy.metrics_port}"
    assert all(group["targets"] == [where] for group in groups)


@pytest.mark.parametrize(
    ("engine", "argument"), [("vllm", "--disable-log-stats"), ("lmdeploy", "--disable-metrics")]
)
def test_an_engine_without_figures_is_no_target(tmp_path: Path, engine: str, argument: str) -> None:
    def found(text: str) -> set[str]:
        return set(monitoring.targets(*_services(made(tmp_path, engine=f"{engine}{text}"))))

    assert found("") - found(f"\nengine_args={argument}") == {"engine-small-0.json"}


def test_names_that_openmetrics_has_written_otherwise_are_the_engines_again(tmp_path: Path) -> None:
    cluster, plan = made(tmp_path)
    jobs = monitoring.configuration(cluster, plan.services)["scrape_configs"]
    rules = next(job for job in jobs if job["job_name"] == "engine")["metric_relabel_configs"]
    relabel = next(rule for rule in rules if rule["regex"].startswith("sglang"))
    escaped = "sglang_num_running_reqs"
    renamed = re.sub(f"^{relabel['regex']}$", relabel["replacement"].replace("$1", r"\1"), escaped)
    assert renamed == "sglang:num_running_reqs"
    assert re.fullmatch(relabel["regex"], renamed) is None
