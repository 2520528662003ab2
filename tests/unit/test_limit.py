"""`up --limit`: host stages on some hosts; stages of all ranks refuse it before anything is done."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from headfirst.common.errors import HeadfirstError, InputError
from headfirst.control.deployment.hosts import probe
from headfirst.control.deployment.running.limit import refuse_limit
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.inventory.inventory import load
from headfirst.control.run.events import HostFailed
from headfirst.control.run.result import RunResult


def options(limit: str | None, *tags: str) -> RunOptions:
    return RunOptions([Path("lab.ini")], limit=limit, tags=tags)


@pytest.mark.parametrize(
    "tag",
    ["check", "host", "tuning", "driver", "rdma", "docker", "image", "tools", "webui", "router", "proxy"],
)
def test_host_stages_take_it(tag: str) -> None:
    refuse_limit(options("node3", tag))


@pytest.mark.parametrize("tags", [(), ("weights",), ("serve",), ("engine",), ("host", "serve")])
def test_stages_of_all_ranks_refuse_it(tags: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        refuse_limit(options("node3", *tags))
    assert caught.value.exit_code == 2
    assert "takes no --limit" in caught.value.what or "take no --limit" in caught.value.what
    assert "-l node3 -t host" in str(caught.value.hint)


def test_without_it_everything_runs() -> None:
    refuse_limit(options(None))


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
    monkeypatch.setattr(probe, "try_stages", lambda *_: answered)
    cluster = load([inventory], (), limit)
    if ends:
        with pytest.raises(HeadfirstError, match="node2"):
            probe.probe_hosts(cluster, [])
        return
    assert [host.name for host in probe.probe_hosts(cluster, []).hosts] == ["node1", "node2"]
    monkeypatch.setattr(probe, "try_stages", lambda *_: replace(answered, cancelled=True))
    with pytest.raises(HeadfirstError):
        probe.probe_hosts(cluster, [])
