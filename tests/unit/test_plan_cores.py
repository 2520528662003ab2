"""Cores of CPU ranks: from facts or a setting; no core is in two ranks while there are enough."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from clusters import nodes
from headfirst.common.errors import InputError
from headfirst.control.deployment.prepare import prepare
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.types import Host
from headfirst.decide.plan.host.hardware import core_lists


def host(folder: Path, cores: int | None, *settings: str) -> Host:
    path = folder / "mine.ini"
    path.write_text(f"[head]\nnode1 ansible_host=192.0.2.7 {' '.join(settings)}\n[all:vars]\nmodel=a/b\n")
    return replace(load([path]).head, cores=cores)


@pytest.mark.parametrize(
    ("cores", "ranks", "expected"),
    [
        (1, 1, ("0",)),
        (2, 1, ("0-1",)),
        (64, 1, ("0-63",)),
        (8, 2, ("0-3", "4-7")),
        (5, 2, ("0-1", "2-3")),
        (1, 2, ("0", "0")),  # fewer cores than ranks: they must share
    ],
)
def test_from_the_facts(tmp_path: Path, cores: int, ranks: int, expected: tuple[str, ...]) -> None:
    assert core_lists(host(tmp_path, cores), ranks) == expected


def test_the_setting_wins(tmp_path: Path) -> None:
    assert core_lists(host(tmp_path, 64, "cpu_cores=0-3,8-11"), 2) == ("0-3", "8-11")
    assert core_lists(host(tmp_path, 64, "cpu_cores=5"), 1) == ("5",)


def test_unknown_cores_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="node1 is not known") as caught:
        core_lists(host(tmp_path, None), 1)
    assert "cpu_cores" in str(caught.value.hint)


def test_an_empty_range_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no core"):
        core_lists(host(tmp_path, 8, "cpu_cores=7-3"), 1)


def test_two_ranks_a_host_have_half_of_its_cores_each(tmp_path: Path) -> None:
    path = tmp_path / "mine.ini"
    path.write_text(
        "[head]\nn1 ansible_host=192.0.2.7\n[workers]\nn2 ansible_host=192.0.2.8\n[all:vars]\n"
        "model_source=demo\nengine_device=cpu\nengine_image_source=build\nnic=eth0\nhca=none\n"
        "cpu_cores=0-7\ntensor_parallel=4\n"
    )
    planned = nodes(prepare([path], [], probe=False).plan)
    cores = [node.container.environment["SGLANG_CPU_OMP_THREADS_BIND"] for node in planned]
    assert cores == ["0-3|4-7", "0-3|4-7"]
