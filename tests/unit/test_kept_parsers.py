"""A service that runs without parsers keeps its arguments until they are written, or its model changes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from headfirst.common.errors import HeadfirstError, NotReadyError
from headfirst.control.deployment.hosts import probe, running
from headfirst.control.deployment.prepare import Prepared, prepare
from headfirst.control.deployment.running import restarts
from headfirst.control.live.specifications import Present
from headfirst.control.live.ssh_access.transport import NoEngineError
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.build import build
from headfirst.decide.plan.types import PlannedService
from test_restarts import SECRETS, runs

pytestmark = pytest.mark.usefixtures("no_hub")

MODELS = ["Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "Qwen/Qwen2.5-7B-Instruct"]


def of(tmp_path: Path, *lines: str, probes: bool = False) -> Prepared:
    path = tmp_path / "cluster.ini"
    host = "n1 ansible_host=192.0.2.1 gpus=2 gpu=H100-80G nic=eth0 hca=none"
    variables = [
        *([] if any(line.startswith("model=") for line in lines) else ["model=Qwen/Qwen3-8B"]),
        *lines,
    ]
    path.write_text("\n".join(["[head]", host, "[all:vars]", *variables, ""]))
    return prepare([path], [], probe=probes)


def argvs(prepared: Prepared) -> tuple[tuple[str, ...], ...]:
    """The commands of rank 0."""
    (service,) = prepared.plan.services
    return tuple(tuple(replica.nodes[0].container.command) for replica in service.replicas)


def beside(prepared: Prepared, ran: Prepared | Sequence[Sequence[str]]) -> PlannedService:
    """The plan on hosts where `ran` runs."""
    (service,) = prepared.cluster.services
    lines = argvs(ran) if isinstance(ran, Prepared) else tuple(map(tuple, ran))
    cluster = replace(prepared.cluster, services=(replace(service, running=lines),))
    return build(cluster, prepared.checkpoints).services[0]


@pytest.mark.parametrize("engine", ["sglang", "vllm", "lmdeploy"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("more", ["", "replicas=2", "tensor_parallel=1"])
def test_what_is_kept_is_the_plan_with_parsers_none(
    tmp_path: Path, engine: str, model: str, more: str
) -> None:
    lines = [f"model={model}", f"engine={engine}", more]
    off = of(tmp_path, *lines, "parsers=none")
    kept = beside(of(tmp_path, *lines), off)
    wanted = off.plan.services[0]
    assert [each.container for replica in kept.replicas for each in replica.nodes] == [
        each.container for replica in wanted.replicas for each in replica.nodes
    ]
    assert kept.capabilities.tools.state == kept.capabilities.reasoning.state == "off"


def test_the_reason_names_what_would_be_added(tmp_path: Path) -> None:
    its = beside(of(tmp_path), of(tmp_path, "parsers=none")).capabilities
    reason = "the service keeps its present arguments; parsers=auto adds the parser qwen"
    assert its.tools.reason == reason
    assert its.reasoning.reason.endswith("adds the parser qwen3")


def test_a_new_cluster_has_parsers_and_keeps_them(tmp_path: Path) -> None:
    first = of(tmp_path)
    assert "--tool-call-parser" in argvs(first)[0]
    again = beside(first, first)
    assert again == first.plan.services[0]
    assert again.kept_out == []


@pytest.mark.parametrize("line", ["parsers=auto", "preset=latency", "model=Qwen/Qwen3-14B"])
def test_what_the_owner_writes_decides(tmp_path: Path, line: str) -> None:
    planned = beside(of(tmp_path, line), of(tmp_path, "parsers=none"))
    assert planned.kept_out == []
    assert planned.capabilities.tools.state == "on"


def test_a_change_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    off, on = (of(tmp_path, "replicas=2", *more) for more in (["parsers=none"], []))
    assert beside(on, [argvs(on)[0], argvs(off)[1]]).kept_out == []
    # Of another model are the arguments of a replica that has not changed yet.
    before = of(tmp_path, "model=Qwen/Qwen3-14B", "replicas=2", "parsers=none")
    assert beside(on, [argvs(on)[0], argvs(before)[1]]).kept_out == []


def test_arguments_of_the_user_stay(tmp_path: Path) -> None:
    tools = "engine_args=--tool-call-parser hermes"
    planned = beside(of(tmp_path, tools), of(tmp_path, tools, "parsers=none"))
    assert [argument.flag for argument in planned.kept_out] == ["--reasoning-parser"]
    assert planned.capabilities.tools.reason == "hermes"


def test_up_announces_it_with_both_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    off = of(tmp_path, "parsers=none")
    asked: list[object] = []

    def with_running(cluster: Cluster, names: Collection[str | None]) -> Cluster:
        asked.append(names)
        services = (replace(cluster.services[0], running=argvs(off)),)
        return replace(cluster, services=services)

    monkeypatch.setattr(running, "with_running", with_running)
    prepared = of(tmp_path, probes=True)
    assert asked == [[None]]
    monkeypatch.setattr(restarts, "specifications", lambda hosts, planned: runs(off))
    (finding,) = restarts.announced(prepared, SECRETS, None, ())
    assert finding.id == "parsers"
    assert finding.what == (
        "Qwen3-8B keeps its present arguments: parsers=auto adds --reasoning-parser qwen3 "
        "--tool-call-parser qwen."
    )
    assert "parsers=auto" in finding.fix
    assert "parsers=none" in finding.fix
    assert restarts.announced(prepared, SECRETS, None, ("webui",)) == []
    of(tmp_path, "parsers=auto", probes=True)
    assert len(asked) == 1  # what is written needs no host


def test_a_host_that_does_not_answer_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared, error = of(tmp_path), NotReadyError("no route to host", where="n1")
    answer: dict[str, dict[str, Present] | HeadfirstError] = {"n1": error}
    monkeypatch.setattr(running, "specifications", lambda hosts, planned: answer)
    with pytest.raises(NotReadyError, match="no route"):
        running.with_running(prepared.cluster, [None])
    # A host that the run leaves out may be away.
    without = prepared.cluster.limited(["other"])
    assert running.with_running(without, [None]).services[0].running == ()
    answer["n1"] = NoEngineError("Docker is not installed")
    assert running.with_running(prepared.cluster, [None]).services[0].running == ()
    spec = {"command": ["python3", "--x"]}
    answer["n1"] = {"headfirst-engine": Present(False, spec, ""), "headfirst-engine-x": Present(True, {}, "")}
    assert running.with_running(prepared.cluster, [None]).services[0].running == (("python3", "--x"),)


def test_a_plan_without_the_hosts_asks_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "probe_hosts", None)
    monkeypatch.setattr(running, "with_running", None)
    assert of(tmp_path).plan.services[0].capabilities.tools.state == "on"
