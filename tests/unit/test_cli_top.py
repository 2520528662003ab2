"""The screen of `deploy top`, driven by Textual's own pilot over a source that stands for the cluster."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from headfirst.common.errors import InputError
from headfirst.control.cli.app import app
from headfirst.control.cli.shown.top import (
    GPU_COLUMNS,
    RANK_COLUMNS,
    REPLICA_COLUMNS,
    Cell,
    Top,
    _rank,
    _replica,
    _total,
)
from headfirst.control.live.gpus import GpuUse, parsed
from headfirst.control.live.load import EngineLoad
from headfirst.control.live.watch import RankRow, ReplicaRow, Snapshot
from textual.pilot import Pilot
from textual.widgets import DataTable, Static
from typer.testing import CliRunner


def load(generated: float, running: int = 0, queued: int = 0) -> EngineLoad:
    return EngineLoad(
        running=running,
        queued=queued,
        cache_usage=0.25,
        generated_tokens_per_s=generated,
        prompt_tokens_per_s=1.0,
        requests_per_s=0.5,
        first_token_s=None,
    )


NOW = Snapshot(
    (
        ReplicaRow("chat", 0, load(50.0, running=3)),
        ReplicaRow("chat", 1, load(7.5, running=9, queued=2)),
        ReplicaRow("embedding", 0, problem="nothing answers at its port"),
    ),
    (
        RankRow("chat", 0, 0, "node1", "running", 0, "2026-11-22T11:00:00.1Z", 1.5, 3 << 30),
        RankRow("chat", 1, 0, "node2", "running", 2, "2026-11-22T10:00:00.1Z", 12.0, 2 << 30),
        RankRow("embedding", 0, 0, "node3\x1b[2J", "unreachable", problem="\x1b]0;owned\x07no route"),
    ),
)


class Source:
    """Counts the looks, and waits for `gate` in each."""

    def __init__(self, snapshot: Snapshot = NOW) -> None:
        self.snapshot = snapshot
        self.looks = 0
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self) -> Snapshot:
        self.gate.wait(10)
        self.looks += 1
        return self.snapshot


def drive(
    act: Callable[[Pilot[None], Top], Awaitable[None]], interval: float = 60.0, source: Source | None = None
) -> Top:
    """The screen after `act`."""
    source = source or Source()
    top = Top(source, interval, title="lab")

    async def run() -> None:
        async with top.run_test(size=(80, 40)) as pilot:
            for _ in range(200):
                if table(top, "ranks").row_count or not source.gate.is_set():
                    break
                await pilot.pause(0.02)
            await act(pilot, top)

    asyncio.run(run())
    return top


def table(top: Top, name: str) -> DataTable[object]:
    return top.query_one(f"#{name}", DataTable)


def column(top: Top, name: str, title: str) -> list[str]:
    names = REPLICA_COLUMNS if name == "replicas" else RANK_COLUMNS + GPU_COLUMNS
    found = table(top, name)
    return [str(found.get_row_at(row)[names.index(title)]).strip() for row in range(found.row_count)]


def summary(top: Top) -> str:
    return str(top.query_one("#summary", Static).render())


def test_what_it_shows() -> None:
    async def act(pilot: Pilot[None], top: Top) -> None:
        assert column(top, "replicas", "tokens/s") == ["50.0", "7.5", ""]
        assert column(top, "replicas", "KV") == ["25%", "25%", ""]
        assert column(top, "replicas", "state") == ["answers", "answers", "problem"]
        problems = str(top.query_one("#problems", Static).render()).splitlines()
        assert problems[0] == "embedding/0: nothing answers at its port"
        assert column(top, "ranks", "rank") == ["chat/0/0", "chat/1/0", "embedding/0/0"]
        assert column(top, "ranks", "CPUs") == ["1.5", "12.0", ""]
        assert column(top, "ranks", "GiB") == ["3.0", "2.0", ""]
        assert "lab: all services, 2 of 3 ranks run, 12 running, 2 queued, 57.5 tokens/s" in summary(top)

    drive(act)


GPU = parsed("0, GPU-0, 40960, 81920, 90, 61, 512.3\n")[0]
REPLICA = ReplicaRow("chat", 1, load(50.0, running=3, queued=2).model_copy(update={"first_token_s": 0.25}))
LOST = load(50.0, running=3).model_copy(update={"queued": None, "cache_usage": None})
RANK = RankRow("chat", 1, 2, "node1", "running", 5, "2026-11-22T11:00:00.1Z", 1.5, 3 << 30, gpus=[GPU])


def texts(columns: Sequence[str], cells: Sequence[Cell]) -> dict[str, str]:
    return dict(zip(columns, (cell.text for cell in cells), strict=True))


def test_each_column_has_its_figure() -> None:
    cells = texts(REPLICA_COLUMNS, _replica(REPLICA, several=True))
    assert cells == {
        "replica": "chat/1", "tokens/s": "50.0", "read/s": "1.0", "req/s": "0.50",
        "running": "3", "queued": "2", "KV": "25%", "TTFT": "0.25 s", "state": "answers",
    }  # fmt: skip
    cells = texts(RANK_COLUMNS + GPU_COLUMNS, _rank(RANK, several=False))
    assert cells == {
        "rank": "1/2", "host": "node1", "state": "running",
        "restarts": "5", "since": "11-22", "CPUs": "1.5", "GiB": "3.0",
        "GPU GiB": "40/80", "use": "90%", "°C": "61", "W": "512",
    }  # fmt: skip


def changes(row: Any) -> Iterator[Any]:
    """The row with another value in each of its fields."""
    for field in fields(row):
        value = getattr(row, field.name)
        if isinstance(value, int | float):
            yield replace(row, **{field.name: value * 2})
        elif not isinstance(value, EngineLoad | Sequence) or isinstance(value, str):
            yield replace(row, **{field.name: "other"})


def test_each_figure_has_a_column() -> None:
    figures = REPLICA.load
    assert figures
    replicas = [*changes(REPLICA)]
    replicas += [
        replace(REPLICA, load=figures.model_copy(update={name: getattr(figures, name) * 2}))
        for name in EngineLoad.model_fields
    ]
    assert len(replicas) == len(fields(REPLICA)) - 1 + len(EngineLoad.model_fields)
    assert [row for row in replicas if _replica(row, several=True) == _replica(REPLICA, several=True)] == []
    ranks = [*changes(RANK)]
    # Which GPUs they are is in JSON alone: the columns are of all GPUs of the rank.
    ranks += [
        replace(RANK, gpus=[GPU.model_copy(update={name: getattr(GPU, name) * 2})])
        for name in GpuUse.model_fields.keys() - {"index", "uuid"}
    ]
    assert len(ranks) == len(fields(RANK)) - 1 + len(GpuUse.model_fields) - 2
    assert [row for row in ranks if _rank(row, several=True) == _rank(RANK, several=True)] == []


def test_what_is_not_known_is_not_zero() -> None:
    unknown = GPU.model_copy(update={"memory_used_bytes": None, "watts": None})
    row = replace(RANK, restarts=None, memory_bytes=None, gpus=[GPU, unknown])
    cells = texts(RANK_COLUMNS + GPU_COLUMNS, _rank(row, several=False))
    assert [cells[name] for name in ("restarts", "GiB", "GPU GiB", "W")] == ["?", "", "", ""]
    cells = texts(REPLICA_COLUMNS, _replica(replace(REPLICA, load=LOST), several=False))
    assert (cells["queued"], cells["KV"]) == ("", "")
    assert _total([LOST]) == "3 running, ? queued, 50.0 tokens/s"
    assert _total([]) == "load unknown"


def test_gpus_have_columns_where_there_are_some() -> None:
    used = parsed("0, GPU-0, 70000, 81559, 90, 61, 512.3\n1, GPU-1, 50000, 81559, [N/A], 65, 400\n")
    first, *others = NOW.ranks
    gpus = Source(Snapshot(NOW.replicas, (replace(first, gpus=used), *others)))

    async def shown(pilot: Pilot[None], top: Top) -> None:
        assert column(top, "ranks", "GPU GiB") == ["117/159", "", ""]
        assert table(top, "ranks").virtual_size.width <= 80
        assert column(top, "ranks", "use") == ["90%", "", ""]
        assert column(top, "ranks", "°C") == ["65", "", ""]
        assert column(top, "ranks", "W") == ["912", "", ""]
        for _ in range(len(REPLICA_COLUMNS) + len(RANK_COLUMNS)):
            await pilot.press("s")
        assert "sorted by GPU GiB" in summary(top)

    drive(shown, source=gpus)

    async def absent(pilot: Pilot[None], top: Top) -> None:
        assert len(table(top, "ranks").columns) == len(RANK_COLUMNS)

    drive(absent)


def test_hosts_do_not_control_the_terminal() -> None:
    async def act(pilot: Pilot[None], top: Top) -> None:
        assert column(top, "ranks", "host")[2] == "node3"
        assert column(top, "ranks", "state")[2] == "unreachable"
        assert "no route" in str(top.query_one("#problems", Static).render())
        assert "\x1b" not in str(top.query_one("#problems", Static).render())

    drive(act)


def test_the_filter_goes_round_the_services() -> None:
    async def act(pilot: Pilot[None], top: Top) -> None:
        found = []
        for _ in range(3):
            await pilot.press("f")
            found.append((column(top, "replicas", "replica"), len(column(top, "ranks", "rank"))))
        assert found == [
            (["chat/0", "chat/1"], 2),
            (["embedding/0"], 1),
            (["chat/0", "chat/1", "embedding/0"], 3),
        ]

    drive(act)


def test_sorting_is_by_value_with_the_unknown_last() -> None:
    async def act(pilot: Pilot[None], top: Top) -> None:
        for _ in range(REPLICA_COLUMNS.index("tokens/s")):
            await pilot.press("s")
        assert column(top, "replicas", "tokens/s") == ["7.5", "50.0", ""]
        await pilot.press("r")
        assert column(top, "replicas", "tokens/s") == ["50.0", "7.5", ""]
        for _ in range(len(REPLICA_COLUMNS) - 1 + RANK_COLUMNS.index("CPUs")):
            await pilot.press("s")
        assert "sorted by CPUs (reversed)" in summary(top)
        assert column(top, "ranks", "CPUs") == ["12.0", "1.5", ""]

    drive(act)


def test_it_looks_again_and_never_twice_at_a_time() -> None:
    async def again(pilot: Pilot[None], top: Top) -> None:
        for _ in range(200):
            if source.looks >= 3:
                return
            await pilot.pause(0.05)
        pytest.fail("it did not look again")

    source, slow = Source(), Source()
    drive(again, interval=0.05, source=source)
    slow.gate.clear()

    async def wait(pilot: Pilot[None], top: Top) -> None:
        await pilot.pause(0.5)
        assert slow.looks == 0
        slow.gate.set()
        await pilot.press("q")

    drive(wait, interval=0.05, source=slow)
    assert slow.looks <= 2  # the one that waited, and one after it


def test_it_needs_a_terminal() -> None:
    inventory = Path(__file__).parents[2] / "inventories" / "a100x4.ini"
    done = CliRunner().invoke(app, ["top", str(inventory)])
    assert isinstance(done.exception, InputError)
    assert done.exception.hint == "For a script: deploy top INVENTORY --json"


def test_json_has_a_reading_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    used = parsed("0, GPU-0, 70000, 81559, 90, 61, 512.3\n")
    first, *others = NOW.ranks
    readings = [NOW, Snapshot(NOW.replicas, (replace(first, gpus=used), *others))]

    def read() -> Snapshot:
        if not readings:
            raise KeyboardInterrupt
        return readings.pop(0)

    @contextmanager
    def watch(*_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(read=read)

    monkeypatch.setattr("headfirst.control.deployment.verbs.service.watch", watch)
    inventory = Path(__file__).parents[2] / "inventories" / "a100x4.ini"
    done = CliRunner().invoke(app, ["top", str(inventory), "--json", "--interval", "0.5"])
    before, after = map(json.loads, done.stdout.splitlines())
    assert before["replicas"][0]["load"]["running"] == 3
    assert [rank["gpus"] for rank in before["ranks"]] == [[], [], []]
    [gpu] = after["ranks"][0]["gpus"]
    assert (gpu["use"], gpu["celsius"], gpu["watts"]) == (90, 61, 512.3)
    assert "\x1b" not in done.stdout


def test_q_ends_it() -> None:
    async def act(pilot: Pilot[None], top: Top) -> None:
        await pilot.press("q")

    assert drive(act).return_code == 0
