"""`deploy report`: what was recorded is on one page that needs nothing else, and no secret is."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
from html.parser import HTMLParser
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from headfirst.control.bench.load import SHAPES, Load
from headfirst.control.bench.result import BenchResult, Percentiles, Point
from headfirst.control.cli.app import app
from headfirst.control.credentials.identity import cluster_folder
from headfirst.control.credentials.secrets import Secrets, load_or_create
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.recorded import keep_images, keep_plan, recorded
from headfirst.control.deployment.verbs.check import keep_comm
from headfirst.control.deployment.verbs.report import answer, program_digest
from headfirst.control.inventory.inventory import load
from headfirst.control.live.status_types import (
    ClusterStatus,
    EngineStatus,
    RankStatus,
    ReplicaStatus,
    WebuiStatus,
)
from headfirst.control.paths import state_dir
from headfirst.control.report.page import html
from headfirst.control.report.types import ClusterReport
from headfirst.control.run.comm import Comm, CommRank, NcclChannels, Pair, Row, Run, Trouble
from headfirst.control.run.events import Finding, FindingsReported, StageDone, StageStarted
from headfirst.control.run.history import read
from headfirst.control.run.reporters.reporter import QuietReporter, Reporter
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.diagnose.measured import Figure, Measured
from measured_subject import SUBJECT
from serving import QuietHandler
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
A100 = ROOT / "inventories" / "a100x4.ini"
HOSTILE = "</td><script>alert('x')</script><img src=https://evil.example/a.png> {{ 7 * 7 }}\x1b[31m&"
DIGEST = "sha256:" + "ab" * 32
VOID = {"meta", "br", "img", "link", "hr", "input"}  # elements of HTML without an end tag


class Page(HTMLParser):
    """Elements with their attributes, the text, and whether every element ends."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.styles: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "style":
            self.styles.append(data)
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def links(page: Page) -> set[str | None]:
    """What a reader can open: pages of the plan, which nothing loads before."""
    return {words["href"] for tag, words in page.elements if tag == "a"}


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789abcdef")
    monkeypatch.setenv("MODELSCOPE_API_TOKEN", "ms-0123456789abcdef")


@pytest.fixture
def cluster() -> Cluster:
    return load([A100])


def show(reporter: Reporter, stage: str, changed: int = 0, findings: tuple[Finding, ...] = ()) -> None:
    reporter.handle(StageStarted(stage, "Title"))
    if findings:
        reporter.handle(FindingsReported(stage, "node01", findings))
    reporter.handle(StageDone(stage, 1.0, changed, ()))


def measured(model: str, date: str = "2026-11-20T10:00:00+00:00") -> BenchResult:
    spread = Percentiles(mean=0.1, p50=0.125, p95=0.25, p99=0.3)
    point = Point(
        load=Load(kind="concurrency", value=16),
        requests=64,
        warmup=16,
        errors={},
        seconds=10.0,
        request_rate=6.4,
        output_rate=1234.5,
        total_rate=2000.0,
        prompt_tokens=100.0,
        answer_tokens=50.0,
        ttft=spread,
        tpot=spread,
        e2e=spread,
    )
    known = {"cluster": "a100x4", "service": "DeepSeek-R1", "model": model, "hosts": ["node01"]}
    subject = SUBJECT.model_copy(update=known)
    return BenchResult(
        headfirst="0.1.0",
        tool="evalscope 1.0",
        date=date,
        subject=subject,
        shape=SHAPES["chat"],
        dataset=None,
        seed=0,
        mark="Run abc.",
        path_seconds=0.001,
        points=[point],
    )


def record_everything(cluster: Cluster, text: str) -> Secrets:
    """Runs of all kinds on this controller; `text` is what a hostile node would send."""
    known = load_or_create(cluster)
    options = RunOptions([A100])
    with recorded(cluster, options, "check", QuietReporter()) as reporter:
        show(reporter, "check", findings=(Finding(text, "warning", "node01", text, text, text),))
    row = Row(bytes=1 << 20, seconds=0.002, algbw=5e8, busbw=7.5e8, wrong=0, graph=False)
    pair = Pair(
        source="node01", target="node02", address="192.168.5.5", port=5000, rendezvous=True, ok=True,
        state="ok", words="",
    )  # fmt: skip
    comm = Comm(
        hosts=[CommRank(host="node01", rank=0, address="192.168.5.4", link_gbit=100, rdma_gbit=0)],
        pairs=[pair, pair.model_copy(update={"ok": False, "state": "dropped", "words": text})],
        rendezvous_held=False,
        port=5000,
        torch=text,
        runs=[Run(backend="gloo", ranks=4, rows=[row], stopped="", link_gbit=100)],
        errors=[Trouble(host="node02", at=0.0, doing="gloo", message=text, fix="", echo=False)],
        nccl={
            "node01": NcclChannels(
                version="2.27", network=text, devices=[], rdma=4, direct=4, socket=0, inside=2, disabled=[]
            )
        },
        findings=[Finding(id="slow", severity="warning", host="node01", what=text, why="", fix=text)],
    )
    with recorded(cluster, options, "check --comm", QuietReporter()) as reporter:
        show(reporter, "comm")
        keep_comm(reporter, comm)
    plan = prepare([A100], [], probe=False).plan
    with recorded(cluster, options, "up", QuietReporter(), plan) as reporter:
        show(reporter, "docker", 3)
        show(reporter, "engine", 1)
        figure = Figure(name="KV cache", unit="tokens", measured=101.0, planned=100.0)
        keep_plan(reporter, plan, {"DeepSeek-R1": Measured(figures=[figure])})
    rank = RankStatus(host="node01", state="running", image=text, image_id=DIGEST, rank=0)
    engine = EngineStatus(url="http://192.168.5.4:30000", ready=True)
    page = WebuiStatus(host="node01", state="running", url="u", ready=True)
    replica = ReplicaStatus(service="DeepSeek-R1", index=0, ready=True, ranks=[rank], engine=engine)
    keep_images(cluster, ClusterStatus(ready=True, replicas=[replica], webui=page))
    folder = state_dir("bench", cluster.name, "20261120-100000-run")
    measured(text).write(folder)
    (state_dir("bench", cluster.name, "20261120-110000-broken") / "result.json").write_text("{")
    return known


def made(*words: str) -> str:
    result = CliRunner().invoke(app, ["report", str(A100), *words])
    assert result.exit_code == 0, result.exception
    return result.stdout


def test_the_page_has_what_was_recorded(cluster: Cluster, tmp_path: Path) -> None:
    record_everything(cluster, "disk is slow")
    target = tmp_path / "report.html"
    made("-o", str(target))
    page = Page(target.read_text())
    text = page.text
    # The plan with its reasons, and the drawing with every rank.
    for word in ("A100", "RDMA over mlx5_1,mlx5_2,mlx5_3,mlx5_4: set in the inventory", "KV cache"):
        assert word in text
    boxes = {words["data-box"] for tag, words in page.elements if tag == "g" and "data-box" in words}
    assert {f"rank:DeepSeek-R1/0:{rank}" for rank in range(4)} <= boxes
    assert "disk is slow" in text
    assert "Measured: KV cache 101 tokens (100 planned, +1 %)" in text
    assert "described by the snapshot of SGLang 0.5.23" in text
    assert "1 of 2 connections made." in text
    assert "node01: NCCL 2.27, network disk is slow: 4 channels over RDMA (4 of them from GPU memory)" in text
    assert "ended early node02, gloo: disk is slow" in text
    assert "gloo all-reduce, 4 ranks, the slowest link has 100 Gbit/s" in text
    assert "4.000" in text  # Gbit/s of the row
    assert "node01 → node02 port 5000" in text
    assert "less than a minute before this report" in text.lower()
    assert "deploy check --comm" in text
    assert "1234.5" in text
    assert "0.125 s" in text
    assert DIGEST in text
    assert f"sha256:{program_digest()}" in text
    assert "lmsysorg/sglang:v0.5.23" in text
    assert "Not recorded" not in text


def test_notes_estimates_and_what_is_not_chosen_are_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a person is warned of in `deploy plan` is in what is handed over too."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    settings = ("engine=vllm", "model=Qwen/Qwen3-32B", "preset=latency", "gpu=RTX-4090", "datacenter=fra1")
    words = [word for setting in settings for word in ("-e", setting)]
    words += ["-e", "gpus=1"]
    text = Page(made(*words)).text
    assert "Note: extra variables (-e): Headfirst does not use datacenter" in text
    assert "activations (estimated)" in text
    assert "Not chosen: preset=latency adds no speculative decoding" in text
    fitting = Page(made(*words, "-e", "model=meta-llama/Llama-3.1-405B-Instruct")).text
    assert "Instead: " in fitting


def test_what_was_not_recorded_is_stated_with_the_command() -> None:
    text = Page(made()).text
    for command in ("check", "check --comm", "up", "bench", "status"):
        verb, _, flag = command.partition(" ")
        assert f"deploy {verb} {A100}{f' {flag}' if flag else ''}" in text
    assert text.count("Not recorded") == 5  # the list, and a word in each section


def test_json_has_the_same_data(cluster: Cluster, tmp_path: Path) -> None:
    record_everything(cluster, "disk is slow")
    found = ClusterReport.model_validate_json(made("--json"))
    assert found.check
    assert found.check.findings[0].what == "disk is slow"
    assert found.comm
    assert (found.comm.connections, found.comm.failed_connections) == (2, 1)
    assert [run.kind.verb for run in found.runs] == ["up", "check --comm", "check"]
    assert [stage.stage for stage in found.runs[0].stages] == ["docker", "engine"]
    assert len(found.bench) == 1  # the broken one is none
    assert found.missing == []
    # The page is made of it and of nothing else.
    assert (
        Page(html(found)).text == Page(html(ClusterReport.model_validate_json(found.model_dump_json()))).text
    )


def test_text_of_nodes_is_text_only(cluster: Cluster) -> None:
    record_everything(cluster, HOSTILE)
    written = made()
    page = Page(written)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "img", "iframe", "object", "link", "form"}
    assert links(page) == {"http://192.168.5.4:8080"}
    assert "<script>alert('x')</script>" in page.text
    assert "{{ 7 * 7 }}" in page.text
    assert "\x1b" not in written
    assert page.text.count("evil.example") >= 6  # as text: findings, comm, images, bench


def test_the_page_asks_for_nothing_and_runs_nothing(cluster: Cluster) -> None:
    record_everything(cluster, "quiet")
    page = Page(made())
    for tag, words in page.elements:
        asks = {"src", "xlink:href", "action", "data", "srcset", *(["href"] if tag != "a" else [])}
        assert not words.keys() & asks, tag
        assert "style" not in words  # the policy has hashes of style elements only
        assert not [name for name in words if name.startswith("on")]
    policy = next(
        words["content"] for _, words in page.elements if words.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy
    assert policy.startswith("default-src 'none';")
    assert len(page.styles) == 2
    for style in page.styles:
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
        assert not re.search(r"url\(|@import", style)
    assert "@media print" in page.styles[0]
    assert all("prefers-color-scheme: dark" in style for style in page.styles)


def test_no_secret_is_in_the_file(cluster: Cluster, tmp_path: Path) -> None:
    known = load_or_create(cluster)
    secrets = [*known.values(), "hf_0123456789abcdef", "ms-0123456789abcdef"]
    # A node that repeats all of them in what it reports.
    record_everything(cluster, " ".join(secrets))
    for words in ((), ("--json",)):
        written = made(*words)
        assert "********" in written
        assert not [secret for secret in [*known.values(), "ms-0123456789abcdef"] if secret in written]


def test_values_of_environments_are_not_handed_over() -> None:
    written = made("-e", json.dumps({"webui_env": {"SOME_API_KEY": "s3cret-of-a-person"}}))
    assert "s3cret-of-a-person" not in written


def test_the_newest_results_count(cluster: Cluster) -> None:
    options = RunOptions([A100])
    for what in ("old", "new"):
        with recorded(cluster, options, "check", QuietReporter()) as reporter:
            show(reporter, "check", findings=(Finding("id", "warning", "node01", what),))
    for number in range(7):
        folder = state_dir("bench", cluster.name, f"run-{number}")
        measured("m", f"2026-11-2{number}T10:00:00+00:00").write(folder)
    found = ClusterReport.model_validate_json(made("--json"))
    assert found.check
    assert [finding.what for finding in found.check.findings] == ["new"]
    assert [one.date[:10] for one in found.bench] == [f"2026-11-2{day}" for day in (6, 5, 4, 3, 2)]
    assert len(read(cluster_folder(cluster)).runs) == 2


def test_a_check_without_findings_is_a_result(cluster: Cluster) -> None:
    with recorded(cluster, RunOptions([A100]), "up", QuietReporter()) as reporter:
        show(reporter, "check")
    assert "No findings." in Page(made()).text


def test_the_page_begins_with_what_a_person_needs_to_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    written = made("-e", "tls=local-ca", "-e", "hca=none", "-e", "tensor_parallel=32")
    text = Page(written).text.partition("Topology")[0]
    for part in (
        "Fits: ",
        "The tensor-parallel ranks are on 4 nodes, and no RDMA connects them",
        "Chat page: https://192.168.5.4",
        "API: https://192.168.5.4/v1 , model DeepSeek-R1",
        "Tools: ",
        "curl https://192.168.5.4/v1/chat/completions -H 'Content-Type: application/json'",
        '-H "Authorization: Bearer $API_KEY" -d \'{"model": "DeepSeek-R1", "messages": ',
        "At the time of this report, https://192.168.5.4/v1 ",
    ):
        assert part in text, text
    assert "memory fraction 0.762" in Page(written).text


def test_what_an_api_answers_now_is_asked_without_a_key() -> None:
    """Real requests to servers: one wants a key, one is not ready, one is silent, and one is not there."""
    seen: list[dict[str, str]] = []
    statuses: dict[int, int] = {}

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            seen.append({"path": self.path, **dict(self.headers)})
            self.send_response(statuses[self.server.server_port])  # type: ignore[attr-defined]
            self.end_headers()

    def serving(status: int) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        statuses[server.server_port] = status
        Thread(target=server.serve_forever, daemon=True).start()
        return server

    with (
        serving(401) as ready,
        serving(503) as starting,
        socket.socket() as silent,
        socket.socket() as closed,
    ):
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        closed.bind(("127.0.0.1", 0))
        ports = [
            ready.server_port,
            starting.server_port,
            *(each.getsockname()[1] for each in (silent, closed)),
        ]
        urls = [f"http://127.0.0.1:{port}/v1" for port in ports]
        found = {url: answer(url) for url in urls}
        for server in (ready, starting):
            server.shutdown()
    assert [found[url] for url in urls] == [
        "answers",
        "answers with HTTP 503, not as a ready model",
        *["did not answer within 2 s"] * 2,
    ]
    assert [request["path"] for request in seen] == ["/v1/models"] * 2
    assert not [request for request in seen if "Authorization" in request]
