"""`up --limit`: host stages on some hosts; stages of all ranks refuse it before anything is done."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from headfirst.common.errors import HeadfirstError
from headfirst.control.deployment.hosts import probe
from headfirst.control.inventory.inventory import load
from headfirst.control.run.events import HostFailed
from headfirst.control.run.result import RunResult


@pytest.mark.parametrize(("limit", "ends"), [("node1", False), ("node2", True), (None, True)])
def test_only_hosts_of_the_limit_must_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str | None, ends: bool
) -> None:
    """The plan is of the whole cluster, so all hosts are read; one that is left out may be away."""
    inventory = tmp_path / "cluster.ini"
    inventory.write_text(
        "[head]\nnode1 ansible_host=192.0.2.1\n[workers]\nnode2 ansible_host=192.0.2.2\n"
        "[all:vars]\ngpus=8\ngpu=H100-80G\nmodel=Qwen/Qwen3-0.6B\n"
    )
    away = HostFailed("Probe", "node2", "Probe the host", "No route to host", True, {})
    answered = RunResult(
        ok=False, cancelled=False, changed={}, failed=[], unreachable=[away], findings=[], stages=[],
        seconds=1.0, log_file=tmp_path / "log",
    )  # fmt: skip
    monkeypatch.setattr(probe, "run_stages", lambda *_, **__: answered)
    cluster = load([inventory], (), limit)
    if ends:
        with pytest.raises(HeadfirstError, match="node2"):
            probe.probe_hosts(cluster, [])
        return
    assert [host.name for host in probe.probe_hosts(cluster, []).hosts] == ["node1", "node2"]
    monkeypatch.setattr(probe, "run_stages", lambda *_, **__: replace(answered, cancelled=True))
    with pytest.raises(HeadfirstError):
        probe.probe_hosts(cluster, [])
