"""A table of inventories: each is read as its author means it, or refused with sentence, place and hint."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from headfirst.common.errors import InputError
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.types import Cluster
from inventory_cases import READ, REFUSED, TWO, Read, Refused, ini
from inventory_server import lay_out


def found(cluster: Cluster, path: str) -> Any:
    if path in ("ranks", "hosts"):
        return [host.name for host in getattr(cluster, path)]
    if path == "notes":
        return len(cluster.notes)
    if path == "served":
        return cluster.services[0].served_model_name
    first, *rest = path.split(".")
    if first == "worker":
        return reduce(getattr, rest[1:], cluster.ranks[1 + int(rest[0])])
    if first == "settings":
        service = cluster.services[0].settings
        return getattr(service if hasattr(service, rest[0]) else cluster.settings, rest[0])
    return reduce(getattr, rest, getattr(cluster, first))


@pytest.mark.parametrize("case", READ.values(), ids=list(READ))
def test_is_read(case: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TEST_ROOT", "/from-env")
    cluster = load([lay_out(tmp_path, case.files)], case.extra)
    assert {path: found(cluster, path) for path in case.expected} == case.expected


@pytest.mark.parametrize("case", REFUSED.values(), ids=list(REFUSED))
def test_is_refused(case: Refused, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load([lay_out(tmp_path, case.files)], case.extra, case.limit)
    error = caught.value
    assert case.what in error.what
    assert str(error.where).endswith(case.where)
    assert case.hint in str(error.hint)
    assert error.hint
    assert error.exit_code == 2
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("limit", "hosts"),
    [
        ("n2", ["n2"]),
        ("workers", ["n2", "n3"]),
        ("all:!n2", ["n1", "n3"]),
        ("workers[1:]", ["n3"]),
        ("~n[13]", ["n1", "n3"]),
        ("head,n3", ["n1", "n3"]),
        (None, ["n1", "n2", "n3"]),
    ],
)
def test_limits_are_read_by_ansible(tmp_path: Path, limit: str | None, hosts: list[str]) -> None:
    path = lay_out(tmp_path, ini(TWO + "n3 ansible_host=192.0.2.13\n"))
    assert [host.name for host in load([path], (), limit).limited_hosts] == hosts
