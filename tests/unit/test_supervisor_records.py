"""Records of ranks as a disk, a person or another version may leave them: none ends a thread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from headfirst.common.metrics import read
from headfirst.node.supervisor import records
from together import together

NAME, GENERATION, HEAD, WORKER, SPARE = "headfirst-engine", "standby-0123456789ab", "a", "b", "c"
READINESS = {"path": "/health", "probe_path": "/v1/completions", "probe_body": {}, "answer": ["usage"]}
SERIES = {"name": "tokens", "labels": {}}
METRICS = {
    **dict.fromkeys(
        ("running", "queued", "cache_usage", "generated_tokens", "prompt_tokens", "first_token"), SERIES
    ),
    "output_token": SERIES,
    "request": SERIES,
    "progress": [SERIES],
    "copies": ["rank"],
}
WAITS = {
    "spare": SPARE,
    "replaces": 1,
    "instead_of": [HEAD, WORKER],
    "instead_of_url": "http://a:30000",
    "after_seconds": 60,
}
SUPERVISION = {
    "ranks": [HEAD, SPARE],
    "hang_seconds": 60,
    "start_seconds": 300,
    "metrics": METRICS,
    "routers": [{"url": "http://router:8000", "key": "one"}],
    "standby": WAITS,
    "worker": {"worker_type": "prefill", "bootstrap_port": 7100},
}
RECORD = {
    "url": "http://a:30000",
    "model": "demo",
    "api_key": "sk",
    "readiness": READINESS,
    "supervision": SUPERVISION,
}


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / NAME / f"{GENERATION}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def changed(keys: tuple[str, ...], value: Any) -> str:
    """The record with another value, or without the field."""
    document = json.loads(json.dumps(RECORD))
    place = document
    for key in keys[:-1]:
        place = place[key]
    if value is None:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    return json.dumps(document)


def test_a_whole_record_is_read(tmp_path: Path) -> None:
    written(tmp_path, json.dumps(RECORD))
    assert records.read(NAME, GENERATION, tmp_path) is None, "it has not served"
    [waits] = records.standbys(SPARE, tmp_path)
    assert (waits.replaces, waits.instead_of, waits.after_s) == (1, (HEAD, WORKER), 60.0)
    assert waits.record.routers[0].url == "http://router:8000"
    written(tmp_path, json.dumps({**RECORD, "worked_at": 1.0}))
    assert records.read(NAME, GENERATION, tmp_path) == waits.record
    assert records.standbys(SPARE, tmp_path) == []


def test_the_routers_of_a_generation_have_the_keys_of_all_generations(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({**RECORD, "worked_at": 1.0}))
    routers = [{"url": "http://router:8000", "key": "new"}, {"url": "http://elsewhere:8000", "key": "new"}]
    planned = changed(("supervision", "routers"), routers)
    path.with_name("0123456789ab.json").write_text(planned)
    path.with_name("damaged.json").write_text("{")
    record = records.read(NAME, GENERATION, tmp_path)
    assert record
    found = [(router.url, router.key) for router in records.router_keys(record, tmp_path)]
    assert found == [("http://router:8000", "one"), ("http://router:8000", "new")]


@together("value", [None, 5, "text", [], {}, ["a", 1], -1, float("nan"), True, "http://a:x"])
@together(
    "keys",
    [
        ("url",),
        ("model",),
        ("api_key",),
        ("readiness",),
        *(("readiness", key) for key in READINESS),
        ("supervision",),
        *(("supervision", key) for key in SUPERVISION),
        ("supervision", "metrics", "running"),
        ("supervision", "metrics", "progress"),
        *(("supervision", "standby", key) for key in WAITS),
    ],
)
def test_a_record_with_any_other_field_ends_nothing(
    tmp_path: Path, keys: tuple[str, ...], value: Any
) -> None:
    written(tmp_path, changed(keys, value))
    for waits in records.standbys(SPARE, tmp_path):
        if metrics := waits.record.metrics:
            read("tokens 1", metrics)
        assert waits.record.ranks[1] == waits.spare and waits.instead_of[waits.replaces]
    records.read(NAME, GENERATION, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff",
        "{}}",
        "[" * 100_000,
        changed(("api_key",), None),
        changed(("supervision", "hang_seconds"), None),
        changed(("supervision", "standby", "after_seconds"), None),
        changed(("supervision", "metrics"), {"new": 1}),
        changed(("supervision", "worker"), {"api_key": "sk"}),
        changed(("supervision", "worker", "bootstrap_port"), "7100"),
    ],
    ids=range(13),
)
def test_a_damaged_record_counts_as_none_and_is_reported_once(
    tmp_path: Path, text: str | bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, text)
    for _ in range(3):
        assert records.standbys(SPARE, tmp_path) == []
        assert records.standby(NAME, GENERATION, tmp_path) is None
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{path}: ") and "deploy up" in line


def test_a_record_that_is_not_there_is_not_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert records.read(NAME, GENERATION, tmp_path) is None
    assert records.standby(NAME, GENERATION, tmp_path) is None
    assert capsys.readouterr().err == ""
