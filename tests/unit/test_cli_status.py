"""What `deploy status` prints: every field of a status changes the text, or is in JSON alone by decision."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from headfirst.control.cli.live import print_status
from headfirst.control.live.load import EngineLoad
from headfirst.control.live.status_types import (
    ClusterStatus,
    EngineStatus,
    RankStatus,
    ReplicaStatus,
    RoutedReplica,
    RouterStatus,
    Supervision,
    WebuiStatus,
)
from headfirst.decide.diagnose.measured import Figure, Measured
from headfirst.decide.plan.types import Capabilities, Capability
from pydantic import BaseModel
from rich.console import Console

CONTAINER: dict[str, Any] = {"host": "node1", "state": "running", "started_at": "2026-01-01T10:00:00Z"}
STATUS = ClusterStatus(
    ready=True,
    replicas=[
        ReplicaStatus(
            service="chat",
            index=index,
            ready=True,
            ranks=[RankStatus(**CONTAINER, rank=0, image="engine:1", argv=["serve"])],
            engine=EngineStatus(
                url="http://engine",
                ready=True,
                models=["demo"],
                load=EngineLoad(
                    running=1,
                    queued=2,
                    cache_usage=0.25,
                    generated_tokens_per_s=3.0,
                    prompt_tokens_per_s=4.0,
                    requests_per_s=5.0,
                    first_token_s=6.0,
                ),
            ),
            supervisor=Supervision(phase="serving", text="answers", for_s=60, restarts=1, last_reason="died"),
        )
        for index in (0, 1)
    ],
    capabilities={
        "chat": Capabilities(
            tools=Capability(state="on", reason="qwen"),
            reasoning=Capability(state="off", reason="parsers=none"),
            context_tokens=4096,
            full_requests=3,
        )
    },
    webui=WebuiStatus(**CONTAINER, url="http://page", ready=True),
    measured={
        "chat": Measured(
            figures=[Figure(name="KV cache", unit="tokens", measured=9.0, planned=8.0)],
            seconds={"starting": 7.0},
            started_at="2026-01-01",
        )
    },
    routers=[
        RouterStatus(
            **CONTAINER,
            service="chat",
            url="http://router",
            ready=True,
            replicas=[RoutedReplica(url="http://engine", state="ready", requests=7)],
        )
    ],
)
# One line is about the page or a router, whose host the inventory names.
LINE = {"host", "health", "restarts", "exit_code", "image", "image_id", "started_at", "argv"}
JSON_ALONE = {
    "ClusterStatus": {"ready"},
    "RankStatus": {"health", "restarts", "exit_code", "image_id", "gpus"},
    "WebuiStatus": LINE,
    "RouterStatus": LINE | {"state"},
    "EngineLoad": {"requests_per_s", "first_token_s"},
    "Supervision": {"start_seconds"},
    "Measured": {"started_at"},
}
OTHERS = {bool: False, int: 43, float: 43.0, str: "other", list: [], dict: {}}


def printed(status: ClusterStatus) -> str:
    out = io.StringIO()
    print_status(status, "x.ini", Console(file=out, width=200), arguments=True)
    return out.getvalue()


def changes(model: BaseModel) -> Iterator[tuple[str, str, Any]]:
    """Class and name of each field, also below, and the model with another value there."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        below = value[0] if isinstance(value, list) and value else value
        below = next(iter(value.values())) if isinstance(value, dict) else below
        if isinstance(below, BaseModel):
            for kind, field, changed in changes(below):
                new = [changed, *value[1:]] if isinstance(value, list) else changed
                new = dict.fromkeys(value, changed) if isinstance(value, dict) else new
                yield kind, field, model.model_copy(update={name: new})
        else:
            yield (
                type(model).__name__,
                name,
                model.model_copy(update={name: OTHERS.get(type(value), "other")}),
            )


def test_what_is_not_known_is_a_question_mark() -> None:
    replica = STATUS.replicas[0]
    load = replica.engine.load
    assert load
    engine = replica.engine.model_copy(update={"load": load.model_copy(update={"queued": None})})
    unknown = Supervision(phase="unknown", text="no route to host")
    lost = replica.model_copy(update={"supervisor": unknown, "engine": engine})
    text = printed(STATUS.model_copy(update={"replicas": [lost]}))
    assert "supervisor  unknown; no route to host; ? restarts\n" in text
    assert "1 running, ? queued, KV cache 25%\n" in text


def test_every_field_is_shown_but_those_that_json_has_alone() -> None:
    before = printed(STATUS)
    silent: dict[str, set[str]] = {}
    for kind, field, status in changes(STATUS):
        if printed(status) == before:
            silent.setdefault(kind, set()).add(field)
    assert silent == JSON_ALONE
