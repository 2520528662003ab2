"""`--service` of `up` and `down`: what a run does to one service, and what it leaves alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from headfirst.common.errors import InputError
from headfirst.control.cli import down as cli_down
from headfirst.control.cli import up as cli_up
from headfirst.control.cli.verb import OutputFormat
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running import playbooks
from headfirst.control.deployment.running.artifacts import Artifacts
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.phases import Phase, of_down, of_up
from headfirst.control.deployment.verbs import down as stopping
from headfirst.control.deployment.verbs import up as starting
from headfirst.control.deployment.verbs.up import UpOutcome
from headfirst.control.inventory.inventory import load
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.control.run.result import RunResult
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.capabilities import sentence
from headfirst.decide.plan.types import Plan
from host_records import HostRecords

CHAT = (
    "[chat]\nn1 ansible_host=192.0.2.1\nn2 ansible_host=192.0.2.2\n[chat:vars]\n"
    "model=Qwen/Qwen3-0.6B\ngpus_per_replica=8\n"
)
EMBEDDING = "[embedding]\nn3 ansible_host=192.0.2.3\n[embedding:vars]\nmodel=Qwen/Qwen3-Embedding-0.6B\n"
CODE = "[code]\nn4 ansible_host=192.0.2.4\n[code:vars]\nmodel=Qwen/Qwen3-8B\n"
MONITORING = "[monitoring]\nn5 ansible_host=192.0.2.5\n"
ALL = "[all:vars]\ngpus=8\ngpu=H100-80G\nnic=eth0\nhca=none\nmodel_source=huggingface\n"
LOCK = "/run/headfirst/lock.json"
DONE = RunResult(True, False, {"n1": 2}, [], [], [], [], 0.0, Path("log"))


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def written(folder: Path, settings: str = "proxy=true\n") -> Path:
    path = folder / "mine.ini"
    path.write_text(CHAT + EMBEDDING + CODE + MONITORING + ALL + settings)
    return path


def prepared(folder: Path, service: str | None, limit: str | None = None) -> tuple[Cluster, Plan]:
    made = prepare([written(folder)], (), probe=False, service=service, limit=limit)
    return made.cluster, made.plan


def brought(cluster: Cluster, plan: Plan, service: str | None) -> list[Phase]:
    files = Artifacts(Path("wheel"))
    keys = Secrets().with_keys(other.name for other in cluster.services).with_grafana_password()
    return of_up(cluster, plan, keys, files, cluster.whole_service(service))


def limited(phases: list[Phase], cluster: Cluster) -> dict[str, set[str]]:
    """The hosts that each playbook acts on."""
    found: dict[str, set[str]] = {}
    for phase, at in playbooks._limited(phases, RunOptions(cluster.inventories), cluster):
        found.setdefault(phase.playbook, set()).update(at.limit or ())
    return found


def test_up_brings_the_stages_of_one_service_to_its_hosts(tmp_path: Path) -> None:
    cluster, plan = prepared(tmp_path, "code")
    assert limited(brought(cluster, plan, "code"), cluster) == {
        # n1 has the credentials, the page and the proxy, n5 Prometheus.
        "check.yml": {"n1", "n4", "n5"},
        "machine.yml": {"n1", "n4", "n5"},
        "image.yml": {"n4"},
        "weights.yml": {"n4"},
        "serve.yml": {"n4"},
        "webui.yml": {"n1"},
        "proxy.yml": {"n1"},
        "close.yml": {"n1", "n4", "n5"},
        "monitoring.yml": {"n1", "n4", "n5"},
    }


def test_replicas_and_routers_of_a_service_belong_to_it(tmp_path: Path) -> None:
    cluster, plan = prepared(tmp_path, "chat")
    at = limited(brought(cluster, plan, "chat"), cluster)
    assert (at["serve.yml"], at["router.yml"], at["deregister.yml"]) == (
        {"n1", "n2"},
        {"n1"},
        {"n1"},
    )
    assert at["prune.yml"] == {"n1", "n2"}


def test_what_all_services_share_follows_the_whole_plan(tmp_path: Path) -> None:
    cluster, plan = prepared(tmp_path, "code")
    phases = {phase.playbook: phase.variables for phase in brought(cluster, plan, "code")}
    page = phases["webui.yml"]["n1"]
    assert page["open_webui_container"]["environment"]["OPENAI_API_BASE_URLS"].count("http") == 2
    assert page["open_webui_engine_api_key"].count(";") == 1
    # The page is proven with what the run brings: another service may be down.
    assert page["open_webui_model_name"] == "Qwen3-8B"
    assert len(phases["proxy.yml"]["n1"]["proxy_services"]) == 3
    assert phases["serve.yml"]["n4"]["engine_planned"] == ["headfirst-engine-code"]
    # A host of another service may be away.
    assert phases["check.yml"]["n4"]["check_peers"] == ["192.0.2.1", "192.0.2.5"]


def test_a_service_that_is_no_chat_leaves_the_page_alone(tmp_path: Path) -> None:
    cluster, plan = prepared(tmp_path, "embedding")
    found = limited(brought(cluster, plan, "embedding"), cluster)
    assert "webui.yml" not in found
    assert (found["serve.yml"], found["proxy.yml"]) == ({"n3"}, {"n1"})


def test_limit_and_service_together(tmp_path: Path) -> None:
    cluster, plan = prepared(tmp_path, "chat", limit="n2,n3")
    assert [host.name for host in cluster.limited_hosts] == ["n2"]
    with pytest.raises(InputError, match="--limit leaves no host of code"):
        prepared(tmp_path, "code", limit="n3")
    options = RunOptions(cluster.inventories, tags=("webui",), service="embedding")
    with pytest.raises(InputError, match="acts on a host"):
        playbooks.run_phases(
            brought(cluster, plan, "embedding"),
            options,
            cluster,
            None,  # type: ignore[arg-type]
        )


@pytest.mark.parametrize(
    ("service", "what", "hint"),
    [
        ("chat/1", "names a replica", "Write --service chat."),
        ("/1", "names a replica", "Write --service NAME."),
        ("cat", "no service is called cat", "Services: chat, embedding, code."),
    ],
)
def test_only_a_whole_service_can_be_named(tmp_path: Path, service: str, what: str, hint: str) -> None:
    cluster = load([written(tmp_path)])
    with pytest.raises(InputError, match=what) as raised:
        cluster.whole_service(service)
    assert (raised.value.hint, raised.value.exit_code) == (hint, 2)


def test_a_service_is_found_by_its_own_name_before_the_name_that_another_serves(tmp_path: Path) -> None:
    cluster = load([written(tmp_path)])
    first, second, *others = cluster.services
    settings = first.settings.model_copy(update={"served_model_name": second.name})
    cluster = replace(cluster, services=(replace(first, settings=settings), second, *others))
    assert cluster.service(second.name) == second
    assert cluster.service(second.served_model_name) == second


def test_up_prepares_locks_and_judges_the_service_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chat model does not fit: a run that leaves it alone does not mind."""
    hosts = HostRecords(tmp_path / "hosts", monkeypatch)
    seen: dict[str, Any] = {}

    def known(*given: Any, probe: bool, ports: bool, **more: Any) -> Any:
        return prepare(*given, probe=False, **more)

    def builds(cluster: Cluster, plan: Plan) -> list[Any]:
        seen["built"] = [service.name for service in plan.services]
        return []

    def run(phases: list[Phase], cluster: Cluster, **_: Any) -> RunResult:
        locked = (host for host in ("n1", "n2", "n3", "n4", "n5") if hosts.record(host, LOCK))
        seen.update(playbooks=[phase.playbook for phase in phases], locked=list(locked))
        return DONE

    monkeypatch.setattr(starting, "prepare", known)
    monkeypatch.setattr(starting.artifacts, "builds", builds)
    monkeypatch.setattr(starting.artifacts, "build_node_wheel", lambda _: Path("wheel"))
    monkeypatch.setattr(starting, "run_phases", run)
    path = written(tmp_path)
    path.write_text(path.read_text().replace("Qwen/Qwen3-0.6B", "deepseek-ai/DeepSeek-R1"))
    outcome = starting.up(RunOptions([path], service="code"), QuietReporter())
    assert [service.name for service in outcome.plan.services] == ["code"]
    assert (seen["built"], seen["locked"]) == (["code"], ["n1", "n4", "n5"])
    assert seen["playbooks"].count("serve.yml") == 1
    with pytest.raises(InputError, match="GPU"):
        starting.up(RunOptions([path]), QuietReporter())


def test_the_summary_of_up_is_about_the_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster, plan = prepared(tmp_path, "code")
    planned = [service for service in plan.services if service.name == "code"]
    result = SimpleNamespace(
        changed_total=3, findings=[], stages=[SimpleNamespace(stage="engine", seconds=1.0)], seconds=1
    )
    outcome: Any = UpOutcome(
        plan.model_copy(update={"services": planned}),
        result,  # type: ignore[arg-type]
        tmp_path / "c",
        tmp_path / "mine.ini",
        check=False,
        service=cluster.service("code"),
    )
    cli_up.print_summary(outcome, as_json=False)
    text = capsys.readouterr().out
    assert "Service code is up. 3 changes made." in text
    assert sentence(planned[0].capabilities) in text
    assert f"deploy down {tmp_path / 'mine.ini'} --service code" in text
    cli_up.print_summary(outcome, as_json=True)
    [service] = json.loads(capsys.readouterr().out)["services"]
    assert (service["service"], service["api"]) == ("code", ["http://192.0.2.1/services/code/v1"])
    assert service["capabilities"] == planned[0].capabilities.model_dump()


def test_down_stops_the_routers_and_ranks_of_one_service(tmp_path: Path) -> None:
    cluster = load([written(tmp_path)])
    phases = of_down(cluster, cluster.service("chat"))
    assert [(phase.playbook, list(phase.variables)) for phase in phases] == [
        ("stop_router.yml", ["n1"]),
        ("stop.yml", ["n1"]),
        ("stop.yml", ["n2"]),
    ]
    assert [phase.playbook for phase in of_down(cluster, cluster.service("code"))] == ["stop.yml"]


def test_down_locks_the_hosts_of_the_service_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    HostRecords(tmp_path / "hosts", monkeypatch)
    target = stopping.target(RunOptions([written(tmp_path)], service="chat"))
    assert {host.name for host in target.cluster.limited_hosts} == {"n1", "n2"}
    assert str(target.service) == "chat"


@pytest.mark.parametrize(
    ("service", "kept"),
    [
        ("chat", ["chat_page", "proxy", "monitoring"]),
        ("embedding", ["proxy", "monitoring"]),
    ],
)
def test_down_prints_what_still_refers_to_the_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], service: str, kept: list[str]
) -> None:
    cluster = load([written(tmp_path)])
    target = stopping.DownTarget(cluster, RunOptions(cluster.inventories), service=cluster.service(service))
    cli_down.print_down(DONE, target, data=False, as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "event": "down",
        "changed": 2,
        "data_removed": False,
        "service": service,
        "kept": kept,
    }
    cli_down.print_down(DONE, target, data=False, as_json=False)
    text = capsys.readouterr().out
    assert ("chat page" in text) == ("chat_page" in kept)
    assert f"deploy up {cluster.inventories[0]} --service {service}" in text
    whole = stopping.DownTarget(cluster, RunOptions(cluster.inventories, check=True))
    cli_down.print_down(DONE, whole, data=False, as_json=False)
    assert capsys.readouterr().out == "Check mode: 2 tasks would change something.\n"


def test_data_is_of_all_services(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="of all services"):
        cli_down.down(RunOptions([written(tmp_path)], service="chat"), OutputFormat(), data=True)
