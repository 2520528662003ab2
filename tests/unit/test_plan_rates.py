"""Rates and plan: what is given, measured or assumed, and what the plan makes of it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clusters import planned, with_hosts
from headfirst.common.errors import InputError
from headfirst.control.cli.shown.plan import print_plan
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.hosts import probe
from headfirst.control.deployment.running.artifacts import Artifacts
from headfirst.control.deployment.running.role_vars.hosts import check_vars
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.types import Plan, Rate
from headfirst.decide.plan.weights.duration import GBIT, connections, rates
from known_models import model
from run_variables import up_variables

ROOT = Path(__file__).resolve().parents[2]
GB = 10**9


def cluster(*extra: str, inventory: str = "a100x4.ini") -> Cluster:
    return load([ROOT / "inventories" / inventory], extra)


def plan(made: Cluster) -> Plan:
    return planned(made, model())


def known(made: Cluster) -> dict[str, tuple[str, str]]:
    return {
        rate.what: (rate.text, rate.known)
        for rate in rates(made.ranks, made.settings.download_rate, from_hub=True, convert=True)
    }


def test_rates_are_assumed_where_nobody_says() -> None:
    assert known(cluster()) == {
        "download": ("1 Gbit/s", "assumed"),
        "network": ("10 Gbit/s", "assumed"),
        "disk": ("2 GB/s", "assumed"),
        "processor": ("32 cores", "assumed"),
    }


def test_rates_that_are_given_win_over_facts_and_the_slowest_host_counts() -> None:
    made = cluster("download_rate=500mbit", "disk_rate=2.5Gbyte/s")
    hosts = [replace(host, link_rate=100 * GBIT, cores=64) for host in made.ranks]
    hosts[1] = replace(hosts[1], link_rate=25 * GBIT)
    hosts[2] = replace(hosts[2], network_rate=GBIT // 4)
    assert known(with_hosts(made, hosts)) == {
        "download": ("500 Mbit/s", "given"),
        "network": ("250 Mbit/s at node03", "given"),
        "disk": ("2.5 GB/s", "given"),
        "processor": ("64 cores", "measured"),
    }
    assert known(with_hosts(made, hosts[:2]))["network"] == (
        "25 Gbit/s at node02",
        "measured",
    )


def test_processors_do_less_with_each_byte_where_less_is_to_be_done() -> None:
    made = cluster()

    def processor(made: Cluster, *, from_hub: bool, convert: bool) -> float:
        found = rates(made.ranks, None, from_hub=from_hub, convert=convert)
        return next(rate.bytes_per_second for rate in found if rate.what == "processor")

    all_of_it = processor(made, from_hub=True, convert=True)
    assert processor(made, from_hub=False, convert=True) > all_of_it
    assert processor(made, from_hub=True, convert=False) > all_of_it
    assert processor(with_hosts(made, made.ranks[:1]), from_hub=True, convert=True) > all_of_it


@pytest.mark.parametrize(
    "text", ["10", "10g", "10Gb", "10GB", "gbit", "1,5gbit", "-1gbit", "0gbit", "1 gibit"]
)
def test_a_rate_without_a_clear_unit_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="rate") as caught:
        cluster(json.dumps({"download_rate": text}))
    assert "deploy variables download_rate" in str(caught.value)


def test_the_plan_carries_the_time() -> None:
    weights = (
        plan(cluster("download_rate=10gbit", "network_rate=25gbit", "disk_rate=3gbyte")).services[0].weights
    )
    assert weights.time.bottleneck == "disk"
    assert weights.time.seconds == pytest.approx(12.2 * 60, rel=0.01)
    assert weights.time.documented_seconds > 3 * weights.time.seconds


def test_the_time_is_printed_with_its_bottleneck_and_how_it_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_plan(plan(cluster("network_rate=25gbit")))
    printed = capsys.readouterr().out
    assert "Time: weights in about 99 min; bottleneck is the download: 688.6 GB at 1 Gbit/s." in printed
    assert "assumed: download 1 Gbit/s, disk 2 GB/s, processor 32 cores" in printed
    assert "given: network 25 Gbit/s" in printed


@pytest.mark.parametrize(("keep", "needed"), [("no", 1369 + 34), ("yes", 1369 + 689)])
def test_the_fp8_copy_takes_space_only_while_it_passes(keep: str, needed: int) -> None:
    made = cluster(f"keep_fp8={keep}")
    whole = plan(made)
    assert check_vars(made, whole)["node02"]["check_min_disk_gb"] == pytest.approx(needed * 1.1, rel=1e-3)
    variables = up_variables(made, whole, Secrets(), Artifacts(Path("/none")))
    assert [found["weights_keep_fp8"] for found in variables.values()] == [keep == "yes"] * 4


def test_nothing_but_the_checkpoint_takes_space_where_nothing_is_converted() -> None:
    whole = plan(cluster("keep_fp8=yes", inventory="h100x2.ini"))
    weights = whole.services[0].weights
    assert weights.disk_bytes == weights.source_bytes
    assert not weights.keep_fp8


def test_facts_of_the_hosts_become_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    def facts(last: int, mbit: int = 200_000) -> dict[str, Any]:
        nic = {
            "name": "ens1",
            "kind": "physical",
            "addresses": [f"192.168.5.{last}"],
            "mtu": 9000,
            "mbit": mbit,
        }
        own = {"gpus": [], "gpus_on_pci": [], "hcas_on_pci": [], "cores": 48, "memory_bytes": 16 * GB}
        return own | {"nics": [nic], "routes": {}, "hcas": []}

    answers = {"node01": facts(4), "node02": facts(5), "node03": facts(6, 0), "node04": facts(7)}
    monkeypatch.setattr(
        probe,
        "run_stages",
        lambda *_, **__: SimpleNamespace(ok=True, failed=[], unreachable=[], stats=answers),
    )
    probed = probe.probe_hosts(cluster(), [])
    assert known(probed)["network"] == ("10 Gbit/s at node03", "assumed")
    assert known(probed)["processor"] == ("48 cores", "measured")
    assert probed.head.link_rate == 200 * GBIT
    # Eight shards of R1 need 34 GB: its disks read again what such nodes cannot keep.
    assert plan(probed).services[0].weights.time.stages["disk"] == pytest.approx(
        (689 * 3 + 1369) / 2, rel=1e-3
    )


def test_the_module_looks_at_this_machine_in_seconds() -> None:
    answer = subprocess.run(
        [sys.executable, ROOT / "plugins" / "modules" / "host_facts.py"],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": {"peers": ["127.0.0.1"]}}),
        capture_output=True,
        text=True,
        check=True,
    )
    facts = json.loads(answer.stdout)["host"]
    assert facts["routes"]["127.0.0.1"] == {"nic": "lo", "source": "127.0.0.1"}
    assert facts["stuck"] == []
    assert facts["cores"] >= 1
    assert facts["memory_bytes"] > GB // 2


@pytest.mark.parametrize(("gbit", "expected"), [(1, 2), (10, 2), (25, 4), (100, 13), (400, 16)])
def test_fast_links_get_several_connections(gbit: int, expected: int) -> None:
    rate = Rate(what="network", bytes_per_second=gbit * GBIT, text="", known="given")
    assert connections([rate]) == expected
    assert connections([]) == 2
