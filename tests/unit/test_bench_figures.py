"""Loads, shapes, requests, figures, comparison, promises and the picture: without a service."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from headfirst.common.errors import InputError
from headfirst.control.bench import picture, requests, slo
from headfirst.control.bench.load import SHAPES, Load, loads
from headfirst.control.bench.requests import Scale
from headfirst.control.bench.result import (
    BenchResult,
    Point,
    RequestTimes,
    differences,
    point,
    read,
)
from headfirst.control.bench.slo import Promise
from headfirst.control.bench.trial import compare
from measured_subject import SUBJECT

FOUR = Load(kind="concurrency", value=4)


def samples(count: int, *, first: float = 0.1, step: float = 0.01, answer: int = 11) -> list[RequestTimes]:
    """Answers one after the other."""
    each = first + step * (answer - 1)
    return [
        RequestTimes(start=n * each, end=(n + 1) * each, first=first, prompt=20, answer=answer)
        for n in range(count)
    ]


def result(*points: Point, seed: int = 0) -> BenchResult:
    return BenchResult(
        headfirst="1", tool="evalscope 1", date="2026-01-01T00:00:00+00:00", subject=SUBJECT,
        shape=SHAPES["chat"], dataset=None, seed=seed, mark="Run 1.", path_seconds=0.001, points=list(points),
    )  # fmt: skip


def test_figures_of_a_load() -> None:
    found = point(FOUR, samples(20), 4)
    assert found.seconds == pytest.approx(4.0)
    assert found.request_rate == pytest.approx(5)
    assert found.output_rate == pytest.approx(55)
    assert found.total_rate == pytest.approx(155)
    assert found.tpot and found.ttft and found.e2e
    assert found.tpot.p50 == pytest.approx(0.01)
    assert found.ttft.p99 == pytest.approx(0.1)
    assert found.e2e.mean == pytest.approx(0.2)


def test_percentiles_are_measured_values() -> None:
    times = [RequestTimes(start=0, end=n, first=n, answer=1) for n in range(1, 101)]
    ttft = point(FOUR, times, 0).ttft
    assert ttft
    assert (ttft.p50, ttft.p95, ttft.p99) == (50, 95, 99)


def test_failed_requests_count_in_the_time_and_in_nothing_else() -> None:
    reset = RequestTimes(start=4, end=5, error="reset")
    failed = [RequestTimes(start=4, end=8, error="queue full", status=503), reset]
    found = point(FOUR, [*samples(20), *failed], 0)
    assert found.errors == {"HTTP 503: queue full": 1, "reset": 1}
    assert (found.failed, found.requests) == (2, 22)
    assert found.output_rate == pytest.approx(27.5)
    assert found.e2e and found.e2e.p99 == pytest.approx(0.2)
    found = point(FOUR, [reset], 0)
    assert (found.ttft, found.tpot, found.e2e, found.output_rate) == (None, None, None, 0)


def test_loads_are_read_as_they_are_written() -> None:
    assert [load.value for load in loads("concurrency", "16,1,4")] == [16, 1, 4]
    assert str(loads("rate", "0.5")[0]) == "0.5/s"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("concurrency", "1.5"),
        ("concurrency", "0"),
        ("rate", "-1"),
        ("rate", "x"),
        ("rate", "nan"),
        ("rate", "1,1"),
    ],
)
def test_what_is_no_load_is_refused(kind: str, text: str) -> None:
    with pytest.raises(InputError) as caught:
        loads(kind, text)  # type: ignore[arg-type]
    assert caught.value.where == f"--{kind}"


def test_a_shape_keeps_its_proportions_in_a_small_context() -> None:
    shape = SHAPES["shared-prefix"]
    small = shape.within(1000)
    assert small.prompt + small.answer <= 900
    assert small.shared / small.prompt == pytest.approx(shape.shared / shape.prompt, rel=0.01)
    assert shape.within(None) == shape.within(32_000) == shape


def bodies(shape: str, seed: int, indices: range, mark: str = "Run 1.") -> list[str]:
    found = requests.of_shape(SHAPES[shape], Scale(1.25, 9), indices, model="m", seed=seed, mark=mark)
    return [body["messages"][0]["content"] for body in found]


def test_requests_follow_from_the_seed() -> None:
    assert bodies("chat", 1, range(3)) == bodies("chat", 1, range(3)) != bodies("chat", 2, range(3))
    assert bodies("chat", 1, range(1, 3)) == bodies("chat", 1, range(3))[1:]


def test_prompts_of_two_runs_differ_in_their_mark_only() -> None:
    one, other = bodies("chat", 1, range(1)), bodies("chat", 1, range(1), "Run 2.")
    assert other == [text.replace("Run 1.", "Run 2.") for text in one]
    assert not one[0].startswith(other[0][:6])


def test_prompts_have_the_length_of_their_shape_and_share_what_it_says() -> None:
    first, second = bodies("shared-prefix", 1, range(2))
    assert len(first.split()) * 1.25 + 9 == pytest.approx(2304, rel=0.02)
    shared = next(n for n, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1])
    assert len(first[:shared].split()) == pytest.approx((2048 - 9) / 1.25, rel=0.01)


def test_a_dataset_has_text_messages_and_requests(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    hello = [{"role": "user", "content": "Hello"}]
    file.write_text(
        "\n".join(
            ["Hello", "", json.dumps(hello), json.dumps({"prompt": "Hello"}),
             json.dumps({"messages": hello, "max_tokens": 5, "api_key": "x"})]
        )
    )  # fmt: skip
    found = list(requests.of_dataset(requests.read_dataset(file), range(5), model="m", answer=7))
    assert [body["messages"] for body in found] == [hello] * 5
    assert [body["max_tokens"] for body in found] == [7, 7, 7, 5, 7]
    assert all("api_key" not in body for body in found)


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[1]",
        "[",
        '{"messages": []}',
        '{"prompt": "", "max_tokens": 0}',
        '{"prompt": "", "max_tokens": true}',
    ],
)
def test_a_line_that_is_no_request_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(f"Hello\n{line}\n")
    with pytest.raises(InputError) as caught:
        requests.read_dataset(file)
    assert caught.value.where == f"{file}:2"


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    wrote = result(point(FOUR, samples(20), 4))
    path = wrote.write(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read(tmp_path) == read(path) == wrote


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 2}', "{"])
def test_another_file_is_no_result(tmp_path: Path, text: str) -> None:
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(InputError) as caught:
        read(tmp_path)
    assert str(tmp_path) in (caught.value.where or "")


def test_a_comparison_has_the_loads_of_both_as_ratios() -> None:
    old = [point(FOUR, samples(20), 4), point(Load(kind="rate", value=4), samples(20), 0)]
    failed = RequestTimes(start=0, end=1, error="reset")
    new = [
        point(FOUR, [*samples(20, first=0.2, step=0.02), failed], 4),
        point(loads("rate", "9")[0], samples(3), 0),
    ]
    (row,) = compare(old, new)
    assert row.load == FOUR
    assert row.output_rate == pytest.approx(0.5)
    assert row.ttft_p50 == row.tpot_p95 == row.e2e_p95 == pytest.approx(2)
    assert row.failed == (0, 1)


def test_runs_of_other_requests_are_told_apart() -> None:
    assert differences(result(), result()) == {}
    assert differences(result(), result(seed=3)) == {"seed": (0, 3)}


def test_promises_have_units() -> None:
    assert slo.promises("ttft=2s,tpot=50ms") == [Promise("ttft", 2), Promise("tpot", 0.05)]
    assert slo.promises("") == []
    for wrong in ("ttft=2", "ttfx=2s", "ttft=0s", "ttft=1s,ttft=2s", ","):
        with pytest.raises(InputError):
            slo.promises(wrong)
    # A failed request keeps none.
    measured = point(FOUR, [*samples(99), RequestTimes(start=0, end=1, error="reset")], 0)
    assert slo.broken(measured, [Promise("ttft", 9)]) == ["1 requests failed"]


def service(highest: float, seen: list[float]) -> Callable[[Load], bool]:
    """A service whose time to first token grows with the load, and breaks the promise above `highest`."""

    def keeps(load: Load) -> bool:
        seen.append(load.value)
        measured = point(load, samples(20, first=load.value / highest * 2), 0)
        return not slo.broken(measured, [Promise("ttft", 2.0)])

    return keeps


@pytest.mark.parametrize("highest", [1, 3, 7, 16, 29, 100, 700])
def test_the_highest_concurrency_is_found(highest: int) -> None:
    seen: list[float] = []
    found = slo.search(loads("concurrency", "1,4,16"), service(highest, seen))
    assert found.highest and found.limit
    assert found.highest.value <= highest < found.limit.value
    assert len(seen) == len(set(seen)) <= 3 + slo.MORE_POINTS
    near = found.limit.value - found.highest.value <= max(1, found.limit.value * slo.NEAR)
    assert near or len(seen) == 3 + slo.MORE_POINTS


def test_the_highest_rate_is_found() -> None:
    found = slo.search(loads("rate", "1,2"), service(5.3, []))
    assert found.highest and found.limit
    assert 5.3 * 0.93 <= found.highest.value <= 5.3 < found.limit.value
    # A search ends where nothing keeps the promise or nothing breaks it.
    seen: list[float] = []
    found = slo.search(loads("concurrency", "4"), service(0.5, seen))
    assert found.highest is None
    assert min(seen) == 1
    assert slo.search(loads("concurrency", "1"), service(1e9, [])).limit is None


def test_the_picture_is_svg_with_a_point_a_load() -> None:
    lines = [
        ("<one> & other\x1b[31m", [point(load, samples(20), 0) for load in loads("rate", "1,2,4")]),
        ("nothing", [point(FOUR, [RequestTimes(start=0, end=1, error="reset")], 0)]),
    ]
    root = ElementTree.fromstring(picture.svg("chat", lines))
    circles = [node for node in root.iter() if node.tag.endswith("circle")]
    assert len(circles) == 3
    for circle in circles:
        assert 80 <= float(circle.get("cx", "")) <= 730
        assert 50 <= float(circle.get("cy", "")) <= 396
    texts = [node.text for node in root.iter() if node.tag.endswith("text")]
    assert "<one> & other" in texts
    assert {"1/s", "2/s", "4/s"} <= set(texts)
