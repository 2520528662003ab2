"""What a plan states of tool calls, reasoning and long requests, with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.recorded import keep_plan, recorded
from headfirst.control.deployment.verbs import service as running
from headfirst.control.inventory.inventory import load
from headfirst.control.live.status_types import ClusterStatus, EngineStatus, RankStatus, ReplicaStatus
from headfirst.control.report.build import build
from headfirst.control.report.types import Own
from headfirst.control.run.history import RunHistory
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.decide import engines
from headfirst.decide.plan.capabilities import of_command, sentence
from headfirst.decide.plan.types import Capabilities, Capability, PlannedService

pytestmark = pytest.mark.usefixtures("no_hub")

INVENTORIES = Path(__file__).resolve().parents[2] / "inventories"
_GPU = "gpus=1 gpu=H100-80G"


def service(tmp_path: Path, lines: str, *, host: str = _GPU, replicas: int = 1) -> PlannedService:
    path = tmp_path / "cluster.ini"
    hosts = [f"n{at} ansible_host=192.0.2.{at} {host}" for at in range(1, replicas + 1)]
    workers = "\n".join(["[workers]", *hosts[1:]]) if hosts[1:] else ""
    path.write_text(f"[head]\n{hosts[0]}\n{workers}\n[all:vars]\n{lines}\n")
    return prepare([path], [], probe=False).plan.services[0]


_QWEN, _CODER = "model=Qwen/Qwen3-8B", "model=Qwen/Qwen3-Coder-30B-A3B-Instruct"
_MANUAL = "engine_args=--tool-call-parser hermes"


@pytest.mark.parametrize(
    ("lines", "tools", "reasoning"),
    [
        (f"{_QWEN}\nparsers=auto", "on: qwen", "on: qwen3"),
        (f"{_QWEN}\nparsers=none", "off: parsers=none", "off: parsers=none"),
        (f"{_QWEN}\nparsers=none\n{_MANUAL}", "on: hermes", "off: parsers=none"),
        # Without --enable-auto-tool-choice vLLM passes over the parser.
        (f"{_QWEN}\nengine=vllm\nparsers=auto\n{_MANUAL}", "off: engine_args sets it so", "on: qwen3"),
        (
            f"{_CODER}\nparsers=auto",
            "on: qwen3_coder",
            "off: Qwen3-Coder and Coder-Next is no reasoning model",
        ),
        (
            "model=Qwen/Qwen3-Embedding-0.6B\nparsers=auto",
            "off: task=embedding generates no text",
            "off: task=embedding generates no text",
        ),
    ],
)
def test_tools_and_reasoning(tmp_path: Path, lines: str, tools: str, reasoning: str) -> None:
    its = service(tmp_path, lines).capabilities
    shown = [f"{each.state}: {each.reason}" for each in (its.tools, its.reasoning)]
    assert shown == [tools, reasoning]


@pytest.mark.parametrize(
    ("lines", "tokens"),
    [
        ("", 40960),
        ("engine_args=--context-length 8192", 8192),
        ("engine_args=--context-length=8192", 8192),
        ('engine=vllm\nengine_args="--max-model-len 4096"', 4096),
        ("engine=vllm\ncpu_cores=0-3\nengine_device=cpu", 2048),  # what the plan sets on CPUs
        ('engine=vllm\ncpu_cores=0-3\nengine_device=cpu\nengine_args="--max-model-len 1024"', 1024),
        ("engine=lmdeploy\nengine_args=--session-len 2048", 2048),
    ],
)
def test_the_context(tmp_path: Path, lines: str, tokens: int) -> None:
    assert service(tmp_path, f"{_QWEN}\n{lines}").capabilities.context_tokens == tokens


def test_how_many_of_the_longest_requests_fit(tmp_path: Path) -> None:
    planned = service(tmp_path, f"{_QWEN}\nreplicas=2", replicas=2)
    its, tokens = planned.capabilities, planned.fit.kv_tokens
    assert tokens and its.context_tokens == 40960
    assert its.full_requests == 2 * (tokens // 40960) > 2


def test_no_more_than_the_arguments_allow(tmp_path: Path) -> None:
    few = 'engine=vllm\nengine_args="--max-num-seqs 2 --max-model-len 1024"'
    assert service(tmp_path, f"{_QWEN}\n{few}").capabilities.full_requests == 2


def test_unknown_memory_has_no_number_of_requests(tmp_path: Path) -> None:
    its = service(tmp_path, _QWEN, host="gpus=1").capabilities
    assert (its.context_tokens, its.full_requests) == (40960, None)


def test_the_default_has_its_reasons_in_the_capabilities_alone(tmp_path: Path) -> None:
    lines = "model=Qwen/Qwen3-Embedding-0.6B"
    assert service(tmp_path, lines).arguments_left_out == []
    assert service(tmp_path, f"{lines}\nparsers=auto").arguments_left_out != []
    assert service(tmp_path, _CODER).arguments_left_out == []


@pytest.mark.parametrize("inventory", ["a100x4", "a100x1-70b"])
def test_published_commands_have_no_further_flag(inventory: str) -> None:
    (planned,) = prepare([INVENTORIES / f"{inventory}.ini"], [], probe=False).plan.services
    assert planned.chosen_arguments == []
    assert planned.capabilities.tools == Capability(state="off", reason="parsers=none")


def test_status_has_what_was_planned_here_where_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = service(tmp_path, _QWEN)
    command, cluster = planned.replicas[0].nodes[0].container.command, load([tmp_path / "cluster.ini"])

    def status(argv: list[str]) -> Capabilities:
        rank = RankStatus(rank=0, host="n1", state="running", argv=["entrypoint", *argv])
        engine = EngineStatus(url="http://n1", ready=True)
        replica = ReplicaStatus(service="Qwen3-8B", index=0, ready=True, ranks=[rank], engine=engine)
        state = ClusterStatus(ready=True, replicas=[replica], webui=None)
        monkeypatch.setattr(running, "cluster_status", lambda targets, page: state)
        return running.status(cluster).capabilities["Qwen3-8B"]

    monkeypatch.setattr(running, "known_credentials", lambda cluster: None)
    # Another controller has the arguments alone.
    proven = status(command)
    assert (proven.tools, proven.full_requests) == (planned.capabilities.tools, None)
    bare = [word for word in command if "parser" not in word and not word.startswith("qwen")]
    assert status(bare).tools == Capability(state="off", reason="the engine runs without a parser")
    plan = prepare([tmp_path / "cluster.ini"], [], probe=False).plan
    with recorded(cluster, RunOptions(cluster.inventories, []), "up", QuietReporter()) as shown:
        keep_plan(shown, plan, {})
    assert status(command) == planned.capabilities
    # What another controller has changed since is not what was planned here.
    hermes = ["hermes" if word == "qwen" else word for word in command]
    for other in (bare, [*command, "--context-length", "1024"], hermes):
        assert status(other) == of_command(engines.get("sglang"), other)


def test_the_report_states_them(tmp_path: Path) -> None:
    service(tmp_path, _QWEN)
    plan = prepare([tmp_path / "cluster.ini"], [], probe=False).plan
    report = build(plan, RunHistory(), [], Own(version="1", digest=""), {}, made_at="", inventory="x.ini")
    assert report.services[0].features == sentence(plan.services[0].capabilities)


def test_the_sentence() -> None:
    on, off = Capability(state="on", reason="qwen25"), Capability(state="off", reason="parsers=none")
    its = Capabilities(tools=on, reasoning=off, context_tokens=32768, full_requests=4)
    assert sentence(its) == (
        "Tools: on (qwen25). Reasoning: off (parsers=none). Context 32,768 tokens, 4 such requests at once."
    )
    assert sentence(its.model_copy(update={"full_requests": 1})).endswith("tokens, 1 such request at once.")
    assert sentence(its.model_copy(update={"full_requests": None})).endswith(" Context 32,768 tokens.")
