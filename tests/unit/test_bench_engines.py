"""`deploy bench --engines` without a cluster: what is brought up in which order, and the way back.

`up` and the measurement are fixtures that only keep what they are asked for.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from headfirst.common.errors import HeadfirstError, InputError
from headfirst.control.bench.load import SHAPES, Load
from headfirst.control.deployment.measuring import bench_engines
from headfirst.control.deployment.measuring import restored as restoring
from headfirst.control.deployment.measuring.bench import BenchWatcher, Workload
from headfirst.control.deployment.measuring.bench_engines import EngineChoice, read_names
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.run.reporters.reporter import QuietReporter

LAB = Path(__file__).resolve().parents[2] / "inventories" / "lab.ini"
WORKLOAD = Workload(SHAPES["chat"], [Load(kind="concurrency", value=1)])


def test_names_have_versions() -> None:
    chosen = [EngineChoice("sglang", None), EngineChoice("vllm", "0.31.0")]
    assert read_names("sglang, vllm=0.31.0") == chosen
    for wrong in ("sglang", "sglang,sglang", "sglang,vllm=new", "sglang,", "a,b"):
        with pytest.raises(InputError):
            read_names(wrong)


def compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: str, *, fails: str = "", inventory: Path = LAB
) -> list[str]:
    """What is done in order: `up ENGINE` with its changed variables, `bench ENGINE`."""
    done: list[str] = []

    def engine(options: RunOptions) -> dict[str, Any]:
        return json.loads(options.extra_vars[0]) if options.extra_vars else {"engine": "own"}

    def up(options: RunOptions, _: object) -> None:
        found = engine(options)
        done.append(f"up {found.pop('engine')} {json.dumps(found)}")
        if fails and fails in done[-1]:
            raise HeadfirstError("it does not start")

    def bench(options: RunOptions, workload: Workload, folder: Path, _: object) -> Any:
        done.append(f"bench {engine(options)['engine']} {folder.name}")
        return SimpleNamespace(result=done[-1], folder=folder)

    monkeypatch.setattr(bench_engines, "up", up)
    monkeypatch.setattr(restoring, "up", up)
    monkeypatch.setattr(bench_engines, "bench", bench)
    monkeypatch.setattr(bench_engines, "draw", lambda folder, results: done.append(f"draw {len(results)}"))
    try:
        with QuietReporter() as quiet:
            bench_engines.bench_engines(
                RunOptions([inventory]), WORKLOAD, read_names(names), tmp_path, BenchWatcher(), quiet
            )
    except HeadfirstError as error:
        done.append(error.what)
    return done


def test_each_engine_is_measured_and_the_own_one_returns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    others = '{"engine_version": "0.32.0", "engine_image": null, "engine_args": ""}'
    assert compared(monkeypatch, tmp_path, "sglang,vllm=0.32.0") == [
        "up own {}",
        "bench own sglang",
        f"up vllm {others}",
        "bench vllm vllm",
        "up own {}",
        "draw 2",
    ]


def test_an_engine_that_does_not_start_ends_it_and_the_own_one_returns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = compared(monkeypatch, tmp_path, "vllm=0.32.0,sglang", fails="vllm")
    assert done[1:] == ["up own {}", "it does not start"]


def test_what_cannot_be_planned_is_refused_before_a_restart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (refused,) = compared(monkeypatch, tmp_path, "sglang,lmdeploy")  # it has no CPU path
    assert "cpu" in refused.lower()
    several = LAB.with_name("h100x2-services.ini")
    assert "several" in compared(monkeypatch, tmp_path, "sglang,vllm", inventory=several)[0]
