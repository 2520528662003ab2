"""How a container is asked, and which lines of its log belong to its present start."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.modules import container_watch


class Log:
    """The log of a container; keeps what it was asked for, and refuses what docker-py refuses."""

    since: int | None = None

    def logs(self, *, since: int, **_: Any) -> bytes:
        if since <= 0:
            raise ValueError("since value should be datetime or positive int/float")
        self.since = since
        return b"10 %\r20 %\r\nready\n"


@pytest.mark.parametrize(
    "started_at",
    [
        "2026-01-31T10:20:30.123456789Z",
        "2026-01-31T18:20:30.123456789+08:00",  # as Podman writes it
        "2026-01-31T05:20:30-05:00",
    ],
)
def test_the_lines_since_the_start_are_read_in_any_time_zone(started_at: str) -> None:
    log = Log()
    assert container_watch._log(log, started_at, 2, timestamps=False) == ["20 %", "ready"]
    assert log.since == 1769854830


def test_a_container_that_never_started_has_no_lines() -> None:
    assert container_watch._log(Log(), "0001-01-01T00:00:00Z", 2, timestamps=False) == []


ENGINE = {"url": "http://h", "readiness": {"path": "/v1/health"}, "api_key": "sk"}


@pytest.mark.parametrize(
    ("rank", "record", "url", "path"),
    [
        (
            "0",
            {"url": "http://h", "readiness": {"path": "/v1/health"}, "api_key": "sk"},
            "http://h",
            "/v1/health",
        ),
        ("1", {"url": "http://h", "readiness": {"path": "/v1/health"}, "api_key": "sk"}, None, "/v1/health"),
        ("0", {"url": "http://h", "readiness": {}}, "http://h", "/ready"),  # of a page
        ("0", {}, None, "/ready"),
    ],
)
def test_a_container_is_asked_as_its_record_has_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rank: str,
    record: dict[str, Any],
    url: str | None,
    path: str,
) -> None:
    monkeypatch.setattr(container_watch.generation_records, "path", lambda *names: tmp_path / "_".join(names))
    (tmp_path / "engine_abc").write_text(json.dumps({**record, "model": "demo"}))
    container = SimpleNamespace(labels={"headfirst.generation": "abc", "headfirst.rank": rank})
    parameters = {"name": "engine", "recorded": True, "url": None, "path": "/ready"}
    module = SimpleNamespace(params=parameters, no_log_values=set())
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        container_watch.http_probe, "ask", lambda *words: asked.append(words) or (200, "", "")
    )
    ask, probe, model = container_watch._probe(module, container)
    assert (probe["path"], model) == (path, "demo")
    assert (ask is not None) == (url is not None)
    assert module.no_log_values == ({"sk"} if "api_key" in record else set())
    if ask is not None:
        ask(path, None)
        assert asked[0][:2] == (f"{url}{path}", record.get("api_key"))
