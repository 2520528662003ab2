"""Nodes as a diagnosis sees them, for its tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line
from headfirst.decide import engines
from headfirst.decide.diagnose import decide
from headfirst.decide.diagnose.subject import subject
from headfirst.decide.diagnose.types import Diagnosis, HttpAnswer, NodeFacts, RankContainer

START = 1_800_000_000.0
ARGV = (
    "python3",
    "-m",
    "sglang.launch_server",
    "--tp",
    "2",
    "--dist-init-addr",
    "10.0.0.1:5000",
    "--nnodes",
    "2",
)
SERVES = HttpAnswer(200, "")
SGLANG = subject(engines.get("sglang"), engines.get("sglang").readiness("chat"))
BEGIN = "Init torch distributed begin."


def diagnose(nodes: Sequence[NodeFacts]) -> Diagnosis:
    """What is wrong with ranks of SGLang."""
    return decide.diagnose(nodes, SGLANG)


def container(rank: int, log: dict[float, str] | None = None, **changes: Any) -> RankContainer:
    """A running container of a rank; `log` is seconds after the start → line."""
    lines = tuple(Line(START + seconds, text) for seconds, text in (log or {}).items())
    values: dict[str, Any] = {
        "id": f"{rank}" * 64,
        "image": "engine:1",
        "image_id": "sha256:" + "a" * 64,
        "argv": (*ARGV, "--node-rank", str(rank)),
        "status": "running",
        "running": True,
        "exit_code": 0,
        "created_at": START,
        "started_at": START,
        "finished_at": 0.0,
        "log": lines,
    }
    return RankContainer(**{**values, **changes})


def ended(rank: int, log: dict[float, str], at: float, exit_code: int = 1, **changes: Any) -> RankContainer:
    """A container that ended `at` seconds after its start."""
    state = {"status": "exited", "running": False, "exit_code": exit_code, "finished_at": START + at}
    return container(rank, log, **{**state, **changes})


def node(rank: int, its: RankContainer | None, **changes: Any) -> NodeFacts:
    """The host node1 of rank 0, node2 of rank 1 …, ten minutes after the start."""
    return NodeFacts(rank, f"node{rank + 1}", container=its, **{"now": START + 600, **changes})
