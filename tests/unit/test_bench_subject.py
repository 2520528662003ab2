"""What a measurement records and prints of the service: both sides where prefill and decode are divided."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clusters import catalogued
from headfirst.control.bench.load import SHAPES
from headfirst.control.bench.result import BenchResult, BenchSubject
from headfirst.control.cli.shown.bench import print_result
from headfirst.control.deployment.measuring import chat_service
from headfirst.decide.cluster.types import Cluster, Replica, Service
from headfirst.decide.plan.compile_cache import PROGRAM
from rich.console import Console
from test_disaggregation import PAIR, cluster

DIVIDED = f"{PAIR}prefill_tensor_parallel=4\nprefill_pipeline_parallel=2\ndecode_tensor_parallel=8\n"


@pytest.fixture(autouse=True)
def running(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers whose arguments name their replica."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def nodes_of(_: Cluster, __: Service, replica: Replica) -> tuple[list[Any], None]:
        argv = ("python3", *PROGRAM, "serve", str(replica.index))
        container = SimpleNamespace(image="engine:1", argv=argv)
        return [SimpleNamespace(container=container)], None

    monkeypatch.setattr(chat_service, "nodes_of", nodes_of)


def subject_of(its: Cluster, *, is_routed: bool) -> BenchSubject:
    service = its.services[0]
    return chat_service.subject_of(
        its, service, service.replicas[0], catalogued(its).services[0], is_routed=is_routed
    )


def shown(subject: BenchSubject) -> str:
    result = BenchResult(
        headfirst="1", tool="1", date="2026-01-01T00:00:00+00:00", subject=subject,
        shape=next(iter(SHAPES.values())), dataset=None, seed=0, mark="m", path_seconds=0.0, points=[],
    )  # fmt: skip
    console = Console(file=io.StringIO(), width=200)
    print_result(result, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_both_sides_of_a_divided_service(tmp_path: Path) -> None:
    subject = subject_of(cluster(tmp_path, DIVIDED), is_routed=True)
    assert (subject.replicas, subject.hosts) == ([0, 1], ["node1", "node2"])
    assert (subject.tensor_parallel, subject.pipeline_parallel) == (8, 1)
    assert subject.arguments == ["serve", "1"]
    assert subject.prefill is not None
    assert subject.prefill.model_dump() == {
        "replicas": [0],
        "hosts": ["node1"],
        "tensor_parallel": 4,
        "pipeline_parallel": 2,
        "data_parallel": 1,
        "arguments": ["serve", "0"],
    }
    assert BenchSubject.model_validate_json(subject.model_dump_json()) == subject
    text = shown(subject)
    assert "prefill TP 4 × PP 2, decode TP 8 × PP 1" in text
    assert "1 prefill and 1 decode replica(s) behind a router on 2 node(s)" in text


def test_an_undivided_service_is_recorded_as_before(tmp_path: Path) -> None:
    its = cluster(tmp_path, "replicas=2\n")
    routed, single = subject_of(its, is_routed=True), subject_of(its, is_routed=False)
    assert (routed.replicas, single.replicas) == ([0, 1], [0])
    assert routed.arguments == single.arguments == ["serve", "0"]
    assert "prefill" not in routed.model_dump() and "prefill" not in single.model_dump()
    text = shown(routed)
    assert "TP 8 × PP 1, 2 replica(s) behind a router on 2 node(s)" in text and "prefill" not in text
    assert "TP 8 × PP 1, on 1 node(s)" in shown(single)
