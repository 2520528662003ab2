"""Rehearsed ranks: what of the plan they are, what is left out, and which rule names a blocked port."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line
from clusters import planned, with_settings
from diagnosing import SGLANG, START, container, node
from headfirst.common import container_names as names
from headfirst.common.errors import HeadfirstError, NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.checkpoints import small_files
from headfirst.control.deployment.prepare import Prepared, prepare
from headfirst.control.deployment.verbs.rehearse import ACCEPTANCE, in_up
from headfirst.control.inventory.inventory import load
from headfirst.control.rehearsal import run
from headfirst.control.rehearsal.rank import Rank, RankEvent, Told
from headfirst.control.rehearsal.result import RehearsedReplica
from headfirst.decide import engines
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.diagnose.phases import phases
from headfirst.decide.diagnose.types import NodeFacts
from headfirst.decide.engines.base import Values
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.types import Rehearsal
from known_models import model

INVENTORIES = Path(__file__).resolve().parents[2] / "inventories"


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return load([INVENTORIES / "h20x2.ini"])


@pytest.fixture(scope="module")
def deepseek() -> Checkpoint:
    return model("deepseek-ai/DeepSeek-V3")


def rehearsal(cluster: Cluster, model: Checkpoint, **settings: Any) -> Rehearsal:
    return planned(with_settings(cluster, **settings), model).services[0].rehearsal


def test_the_ranks_are_those_that_serve_but_for_their_weights_and_names(
    cluster: Cluster, deepseek: Checkpoint
) -> None:
    service = planned(cluster, deepseek).services[0]
    replica = service.rehearsal.replicas[0]
    assert replica.engine_url == f"http://127.0.0.1:{service.replicas[0].engine_port}"
    for real, rehearsed in zip(service.replicas[0].nodes, replica.nodes, strict=True):
        kept = ("image", "environment", "network_mode", "ipc_mode", "shm_size", "gpus", "devices", "ulimits")
        for field in kept:
            assert getattr(rehearsed.container, field) == getattr(real.container, field)
        assert rehearsed.container.restart_policy == "no"
        more = [word for word in rehearsed.container.command if word not in real.container.command]
        limited = ["timeout", "--kill-after=10", str(service.readiness.start_seconds + 60)]
        dummies = ["--load-format", "dummy"]
        if real.rank:
            assert more == [*limited, "headfirst-rehearsal", *dummies]
        else:
            file = "/etc/headfirst/rehearsal-r0.yaml"
            assert more == [file, *limited, "headfirst-rehearsal", "127.0.0.1", file, *dummies]
        assert rehearsed.docker_run[:5] == ["docker", "run", "--detach", "--name", "headfirst-rehearsal-r0"]


def test_no_name_of_a_rehearsal_is_that_of_a_rank() -> None:
    assert names.rehearsal(None, 0) == "headfirst-rehearsal-r0"
    assert names.rehearsal("chat", 1) == "headfirst-rehearsal-chat-r1"
    assert not names.is_engine(names.rehearsal(None, 0))
    folder = "/run/headfirst/rehearsals/headfirst-rehearsal-chat-r1"
    assert names.rehearsal_folder(names.rehearsal("chat", 1)) == folder


def test_all_files_of_a_rehearsal_are_in_its_folder(cluster: Cluster, deepseek: Checkpoint) -> None:
    head = planned(cluster, deepseek).services[0].rehearsal.replicas[0].nodes[0].container
    folder = "/run/headfirst/rehearsals/headfirst-rehearsal-r0/"
    files = [volume for volume in head.volumes if "/etc/headfirst/" in volume]
    assert len(files) == 2  # the keys, and the program that checks them
    assert all(volume.startswith(folder) for volume in files)
    assert all(path.startswith(folder) for path in head.files)


@pytest.mark.parametrize(
    ("settings", "in_up", "strict"),
    [({}, True, False), ({"rehearse": "strict"}, True, True), ({"rehearse": "false"}, False, False)],
)
def test_when_up_rehearses_a_large_model(
    cluster: Cluster, deepseek: Checkpoint, settings: dict[str, Any], in_up: bool, strict: bool
) -> None:
    found = rehearsal(cluster, deepseek, **settings)
    assert (found.in_up, found.strict) == (in_up, strict)


def test_the_start_of_a_small_model_is_soon_enough() -> None:
    one = load([INVENTORIES / "h200x1.ini"])
    assert not rehearsal(with_settings(one), model("Qwen/Qwen3-0.6B")).in_up


def test_up_rehearses_the_service_that_it_brings(cluster: Cluster, deepseek: Checkpoint) -> None:
    prepared = Prepared(cluster, planned(cluster, deepseek), {None: deepseek})
    service = cluster.services[0]
    # The image has answered meanwhile: the plan is of another value of the same service.
    (found,) = in_up(prepared, replace(service, running=(("python3",),)))
    assert [node.container.name for node in found.replica.nodes] == ["headfirst-rehearsal-r0"] * 2
    assert found.beside == {node.host: ["headfirst-rehearsal-r0"] for node in found.replica.nodes}
    (text,) = found.texts.values()
    assert found.subject.api_key in text
    assert found.subject.model == "headfirst-rehearsal"
    assert in_up(prepared, replace(service, name="other")) == []


DUMMIES = engines.get("sglang").dummy_weights


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"load_format": "sharded_state"}, "--load-format sharded_state has a loader of its own"),
        ({"load_format": "runai_streamer"}, "--load-format runai_streamer has a loader of its own"),
        ({"model_loader_extra_config": "{}"}, "--model-loader-extra-config is for"),
        ({"modelopt_quant": "fp8"}, "--modelopt-quant converts"),
        ({"hicache_storage_backend": "file"}, "a KV cache that outlives"),
        ({"enable_lmcache": True}, "a KV cache that outlives"),
        ({"kv_offloading_backend": "lmcache"}, "a KV cache that outlives"),
        ({"kv_transfer_config": {"kv_connector": "LMCacheConnectorV1"}}, "a KV cache that outlives"),
        ({"quantization": "bitsandbytes"}, "bitsandbytes quantises while it loads"),
        ({"quantization": "gguf"}, "GGUF files"),
        ({"quantization": "auto-round"}, "AutoRound repacks"),
    ],
)
def test_what_is_not_rehearsed(deepseek: Checkpoint, values: Values, reason: str) -> None:
    found = DUMMIES(deepseek, values)
    assert found.problem.startswith(reason)
    assert found.arguments == ()


def test_formats_that_read_the_checkpoint_as_it_is(deepseek: Checkpoint) -> None:
    nixl = {"kv_transfer_config": {"kv_connector": "NixlConnector"}}
    for loads in ({}, {"load_format": "auto"}, {"load_format": "safetensors"}, nixl):
        assert DUMMIES(deepseek, loads).arguments == ("--load-format", "dummy")


def test_an_engine_without_dummy_weights_is_not_rehearsed(cluster: Cluster, deepseek: Checkpoint) -> None:
    found = rehearsal(cluster, deepseek, engine="lmdeploy")
    assert found.not_rehearsed == "LMDeploy: the engine cannot start without weights."
    assert found.replicas == []


def test_what_a_start_took() -> None:
    lines = [
        Line(START + 10, "server_args=ServerArgs("),
        Line(START + 12, "Init torch distributed begin."),
        Line(START + 20, "Init torch distributed ends."),
        Line(START + 21, "Init torch distributed begin."),
        Line(START + 90, "The server is fired up and ready to roll!"),
    ]
    assert phases(SGLANG.log, lines, START, START + 40) == {
        "container started": 10,
        "starting": 2,
        "joining the other ranks": 8,
        "all ranks joined": 20,
    }


@pytest.mark.parametrize(
    "line",
    [
        b'{"event": "owned"}\n',
        b'{"event": "exited", "code": "0"}\n',
        b'{"event": "exited", "code": 1000000}\n',
        b'{"event": "serving", "more": 1}\n',
        b'{"event": "refused", "why": ["a"]}\n',
        b'["event"]\n',
        b"no JSON\n",
        b'{"event": "beat"',
    ],
)
def test_what_no_script_of_ours_sends_is_refused(cluster: Cluster, deepseek: Checkpoint, line: bytes) -> None:
    place = planned(cluster, deepseek).services[0].rehearsal.replicas[0].nodes[0]
    with pytest.raises(UntrustedError) as error:
        Rank(place, HostAccess("node1", "10.0.0.1"), {}, queue.Queue())._event(line)
    assert error.value.where == place.host


def test_small_files_are_those_beside_the_weights(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "model-1.safetensors", "sub/template.jinja", ".git/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert sorted(small_files.of_folder(tmp_path)) == ["config.json", "sub/template.jinja", "tokenizer.json"]
    (tmp_path / "config.json").unlink()
    with pytest.raises(NotReadyError, match=r"no config\.json"):
        small_files.of_folder(tmp_path)


class Script:
    """What the scripts on the hosts report, and what they were sent."""

    def __init__(self, events: dict[str, list[RankEvent | Exception]]) -> None:
        self.events = events
        self.sent: list[tuple[str, str]] = []


class FakeRank(Rank):
    script: Script

    def start(self) -> None:
        for event in self.script.events[self.node.host]:
            known = isinstance(event, RankEvent)
            self._told.put(Told(self, event if known else None, None if known else event))

    def join(self, seconds: float) -> bool:
        while not self._lines.empty():
            self.script.sent.append((self.node.host, self._lines.get().partition(" ")[0]))
        return True


@pytest.fixture
def rehearse(
    cluster: Cluster, deepseek: Checkpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Any]:
    service = planned(cluster, deepseek).services[0]

    def go(
        events: dict[str, list[RankEvent | Exception]], evidence: list[NodeFacts], **changes: Any
    ) -> tuple[RehearsedReplica, list[tuple[str, str]]]:
        script = Script(events)
        monkeypatch.setattr(FakeRank, "script", script, raising=False)
        monkeypatch.setattr(run, "Rank", FakeRank)
        monkeypatch.setattr(run, "collect", lambda *arguments, **options: evidence)
        monkeypatch.setattr(run, "_SETTLE_S", 0)
        replica = service.rehearsal.replicas[0]
        what = run.Rehearsing(
            service="deepseek",
            replica=replica,
            readiness=service.readiness,
            access={place.host: HostAccess(place.host, place.address) for place in replica.nodes},
            subject=SGLANG,
            folders=service.model_folders,
            complete=["headfirst-manifest.json"],
            small_files=changes.pop("files", dict),
            texts={},
            secrets=[],
            beside={place.host: [place.container.name] for place in replica.nodes},
            seconds=5,
            logs=tmp_path / "logs",
        )
        result = run.rehearse(what, note=lambda text, done: None, **changes)
        return result, script.sent

    yield go


STARTED = RankEvent(event="started")
LISTENS = RankEvent(event="listening")
SERVES = RankEvent(event="serving")


def facts(cluster: Cluster, **log: str) -> list[NodeFacts]:
    return [
        NodeFacts(
            at, host.name, container=container(at, {5.0: log[f"rank{at}"]} if f"rank{at}" in log else {})
        )
        for at, host in enumerate(cluster.services[0].hosts)
    ]


def test_a_replica_that_serves_has_passed(cluster: Cluster, rehearse: Any) -> None:
    head, worker = (host.name for host in cluster.services[0].hosts)
    result, sent = rehearse({head: [STARTED, LISTENS, SERVES], worker: [STARTED]}, facts(cluster))
    assert (result.state, result.why) == ("passed", "")
    assert (worker, "reach") in sent
    assert [host for host, word in sent if word == "stop"] == [head, worker]  # SGLang's way round


def test_a_blocked_port_is_named_with_the_host_that_does_not_get_through(
    cluster: Cluster, rehearse: Any
) -> None:
    head, worker = (host.name for host in cluster.services[0].hosts)
    blocked = RankEvent(event="unreachable", why="Connection refused")
    result, _ = rehearse({head: [STARTED, LISTENS], worker: [STARTED, blocked]}, facts(cluster))
    address = cluster.services[0].hosts[0].address
    assert result.state == "failed"
    assert result.host == worker
    assert result.why == (
        f"it cannot connect to port 5000 of {head} ({address}), where rank 0 listens: Connection refused"
    )
    assert result.found is not None
    assert result.found.decisive is not None
    assert result.found.decisive.rule == "rendezvous-blocked"


def test_a_cause_in_a_log_is_named_as_diagnose_names_it(
    cluster: Cluster, rehearse: Any, tmp_path: Path
) -> None:
    head, worker = (host.name for host in cluster.services[0].hosts)
    log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    ended = RankEvent(event="exited", code=1)
    result, _ = rehearse({head: [STARTED], worker: [STARTED, ended]}, facts(cluster, rank1=log))
    assert (result.state, result.host) == ("failed", worker)
    assert result.found is not None
    assert result.found.decisive is not None
    assert result.found.decisive.rule == "out-of-memory"
    kept = tmp_path / "logs" / f"deepseek-0-rank1-{worker}.log"
    assert result.logs == str(kept.parent)
    assert log in kept.read_text()


def test_a_container_that_docker_does_not_create_has_dockers_words(cluster: Cluster, rehearse: Any) -> None:
    """A host that refuses or is lost is no failure of the start."""
    head, worker = (host.name for host in cluster.services[0].hosts)
    failed = RankEvent(event="failed", why="invalid mount path: 'models' is not absolute")
    result, sent = rehearse({head: [failed], worker: []}, [NodeFacts(0, head, now=START)])
    assert (result.state, result.host, result.why) == ("failed", head, failed.why)
    assert {host for host, _ in sent} == {head}  # the others were not started
    refused = RankEvent(event="refused", why="GPU 0 is in use by process 7 with 80 GiB")
    result, _ = rehearse({head: [refused], worker: []}, facts(cluster))
    assert (result.state, result.host, result.why) == ("not rehearsed", head, refused.why)
    lost = NotReadyError("the host does not answer", where=worker)
    result, _ = rehearse({head: [STARTED], worker: [lost]}, facts(cluster))
    assert (result.state, result.host, result.why) == ("not rehearsed", worker, "the host does not answer")
    with pytest.raises(ZeroDivisionError):  # an error of ours is raised
        rehearse({head: [STARTED], worker: [ZeroDivisionError()]}, facts(cluster))


def test_files_that_cannot_be_read_are_stated(cluster: Cluster, rehearse: Any) -> None:
    head, worker = (host.name for host in cluster.services[0].hosts)

    def files() -> dict[str, dict[str, bytes]]:
        raise HeadfirstError("the hub does not answer")

    lacks = RankEvent(event="folders", missing=["/models/x"])
    result, _ = rehearse({head: [lacks], worker: []}, facts(cluster), files=files)
    assert result.state == "not rehearsed"
    assert result.why == "/models/x is not there: the hub does not answer"


def test_a_rehearsal_ends_with_the_weights(cluster: Cluster, rehearse: Any) -> None:
    head, worker = (host.name for host in cluster.services[0].hosts)
    result, sent = rehearse({head: [STARTED], worker: [STARTED]}, facts(cluster), stop=lambda: True)
    assert result.state == "stopped"
    assert (head, "stop") in sent


def test_ranks_that_neither_serve_nor_end_have_failed(
    cluster: Cluster, rehearse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, worker = (host.name for host in cluster.services[0].hosts)
    monkeypatch.setattr(run.time, "monotonic", iter(range(0, 1000, 2)).__next__)
    result, _ = rehearse({head: [STARTED], worker: [STARTED]}, [node(0, container(0)), node(1, container(1))])
    assert (result.state, result.why) == ("failed", "the ranks did not serve within 5 s")


@pytest.mark.parametrize(
    ("inventory", "layouts"),
    [
        ("a100x4.ini", {"headfirst-acceptance": "TP 32 × PP 1"}),
        ("a100x1-70b.ini", {"headfirst-acceptance": "TP 8 × PP 1"}),
        ("h100x2-services.ini", {"chat": "TP 4 × PP 1", "embedding": "TP 1 × PP 1"}),
        ("lab-vllm.ini", {"headfirst-acceptance": "TP 2 × PP 1"}),
    ],
)
def test_the_acceptance_model_takes_the_planned_hosts(inventory: str, layouts: dict[str, str]) -> None:
    services = prepare([INVENTORIES / inventory], [], probe=False, model=ACCEPTANCE).plan.services
    assert {each.served_model_name: each.pools[0][0].layout for each in services} == layouts
    assert [each.rehearsal.not_rehearsed for each in services] == [""] * len(services)


def test_an_inventory_without_a_model_can_be_accepted(tmp_path: Path) -> None:
    (tmp_path / "new.ini").write_text("[head]\nnode1 ansible_host=192.0.2.1\n[all:vars]\ngpus=8\ngpu=H20\n")
    service = prepare([tmp_path / "new.ini"], [], probe=False, model=ACCEPTANCE).plan.services[0]
    assert service.pools[0][0].layout == "TP 8 × PP 1"
