"""Rules of role check: each speaks for what it is about, and for nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.headfirst.serving.plugins.plugin_utils import (
    check_differences,
    check_findings,
    check_rules,
)
from ansible_collections.headfirst.serving.plugins.plugin_utils.gated_action import spec_of
from headfirst.decide.hardware.facts import NetworkFacts
from headfirst.decide.plan.host import rdma
from recorded_hosts import SHAPES, facts

# The device of the first PCIe switch of the HGX A100.
HCA = "/sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:04.0/0000:0c:00.0/infiniband/mlx5_1"
ADDRESSES = {
    "hgx-a100-roce": "192.168.5.4",
    "hgx-a100-infiniband": "192.168.5.4",
    "hgx-h100-infiniband": "10.0.8.11",
    "h20-roce": "10.6.0.21",
    "pcie-a100": "192.168.20.31",
    "cpu-only": "10.0.0.1",
}
PEERS = {
    "hgx-a100-roce": "192.168.5.5",
    "hgx-a100-infiniband": "192.168.5.5",
    "hgx-h100-infiniband": "10.0.8.12",
    "h20-roce": "10.6.0.22",
    "pcie-a100": "192.168.20.32",
    "cpu-only": "10.0.0.2",
}
ROLE = Path(__file__).resolve().parents[2] / "roles" / "check"
BROKEN: dict[str, Any] = yaml.safe_load((SHAPES / "broken.yml").read_text())


def limits(shape: str, facts: dict[str, Any]) -> dict[str, Any]:
    """What the role would ask of this machine, with the network that the plan chooses for it."""
    known = NetworkFacts.model_validate(facts)
    ports = rdma.agree({"node1": known}).ports["node1"]
    roce = ports and {port.link for _, port in rdma.named(known, ",".join(ports))} == {"Ethernet"}
    return {
        "supported_os": ["debian-12", "ubuntu-22.04", "ubuntu-24.04"],
        "architectures": ["x86_64"],
        "python_min": "3.10",
        "disk_path": "/var/lib/headfirst",
        "min_disk_gb": 100.0,
        "min_memory_gb": 64.0,
        "max_clock_skew_s": 30.0,
        "max_clock_difference_s": 30.0,
        "address": ADDRESSES[shape],
        "is_rank": True,
        "services": [],
        "gpus": len(facts["gpus_on_pci"]),
        "min_cuda": "12.9" if facts["smi_cuda"].startswith("12") else "13.0",
        "min_shm_gb": 34.4,
        "min_kv_shm_gb": 0.0,
        "hca": "=" + ",".join(ports) if ports else "",
        "ib_gid_index": 3 if roce else -1,
        "nic": "",
        "closed_ports": [],
        "exposed_ports": ["32768-60999"],
        "slow_start_args": [],
        "roles_to_come": [],
        "may_reboot": False,
    }


def test_the_variables_of_the_role_are_the_limits_that_the_rules_read(fit: dict[str, Any]) -> None:
    """As Ansible renders them: a number from a template may be a text."""
    spec = spec_of(
        yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    )
    variables = yaml.safe_load((ROLE / "defaults/main.yml").read_text()) | {
        "check_min_disk_gb": "1e6",
        "check_gpus": "0",
    }
    asked = check_findings.limits(variables, spec)
    assert asked.keys() >= limits("cpu-only", fit).keys()
    found = check_findings.findings({"node1": {"host": fit}}, {"node1": asked})
    assert [one["id"] for one in found] == ["disk"]
    with pytest.raises(ValueError, match="check_gpus"):
        check_findings.limits(variables | {"check_gpus": "two"}, spec)


@pytest.fixture
def fit(tmp_path: Path) -> dict[str, Any]:
    """A machine without GPUs that nothing is wrong with."""
    return facts("cpu-only", tmp_path)


def found_in(facts: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    found = check_findings.findings({"node1": {"host": facts}}, {"node1": asked})
    return [one["id"] for one in found]


@pytest.mark.parametrize("shape", list(ADDRESSES))
def test_nothing_is_wrong_with_a_sound_machine(tmp_path: Path, shape: str) -> None:
    known = facts(shape, tmp_path, peers=(PEERS[shape],))
    assert found_in(known, limits(shape, known)) == []


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_broken_machine_has_exactly_its_failure(tmp_path: Path, name: str) -> None:
    variant = BROKEN[name]
    shape = variant["machine"]
    whole = facts(shape, tmp_path / "whole", peers=(PEERS[shape],))
    known = facts(shape, tmp_path / "broken", peers=(PEERS[shape],), changes=variant)
    asked = limits(shape, whole) | variant.get("limits", {})
    found = check_findings.findings({"node1": {"host": known}}, {"node1": asked})
    assert {one["id"] for one in found} == {variant["finds"]}, found
    assert variant["says"] in found[0]["what"]
    (rule,) = [rule for rule in check_rules.RULES if rule.id == variant["finds"]]
    assert set(variant["failures"]) <= set(rule.failures)


DIFFERENT = {
    "gpu-differs": {"edits": {"nvidia-smi -q -x": [["A100-SXM4-80GB", "A100-SXM4-40GB"]]}},
    "image-differs": {"docker": {"/images/engine:1/json": {"Id": "sha256:bbbbbbbbbbbb0000"}}},
    "mtu-differs": {"edits": {"ip -j -d address": [['"mtu": 1500', '"mtu": 9000']]}},
    "firmware-differs": {"files": {f"{HCA}/fw_ver": "20.31.1014"}},
    "rdma-differs": {"files": {f"{HCA}/ports/1/state": "1: DOWN"}},
    "clock-differs": {"live": {"clock_offset_s": -59.8}},
}


@pytest.mark.parametrize("id", list(DIFFERENT))
def test_the_rank_that_differs_from_the_others_is_named(tmp_path: Path, id: str) -> None:
    image = {"/images/engine:1/json": {"Id": "sha256:aaaaaaaaaaaa0000"}}
    changes = {"docker": image} | DIFFERENT[id]
    known = {
        name: facts("hgx-a100-roce", tmp_path / name, changes=changes if name == "b" else {"docker": image})
        for name in ("a", "b", "c")
    }
    asked = limits("hgx-a100-roce", known["a"]) | {"max_clock_skew_s": 60.0}
    found = check_differences.differences(known, dict.fromkeys(known, asked))
    assert [(one["id"], one["host"]) for one in found] == [(id, "b")]
    assert found[0]["fix"] and found[0]["why"].endswith(".")


@pytest.mark.parametrize(
    ("name", "may_reboot", "severity"),
    [
        ("driver-not-running", False, "warning"),
        ("nouveau", False, "error"),
        ("nouveau", True, "warning"),
        ("secure-boot", True, "error"),
    ],
)
def test_what_a_role_is_about_to_mend_is_a_warning(
    tmp_path: Path, name: str, may_reboot: bool, severity: str
) -> None:
    machine = BROKEN[name]["machine"]
    known = facts(machine, tmp_path, peers=(PEERS[machine],), changes=BROKEN[name])
    asked = limits(machine, known) | {"roles_to_come": ["nvidia_driver"], "may_reboot": may_reboot}
    (found,) = check_findings.findings({"node1": {"host": known}}, {"node1": asked})
    assert found["severity"] == severity
    assert ("nvidia_driver" in found["fix"]) == (name != "secure-boot")


def test_a_clock_that_is_wrong_makes_no_other_wrong(tmp_path: Path) -> None:
    known = {name: facts("cpu-only", tmp_path / name) for name in ("a", "b")}
    known["b"]["clock_offset_s"] = -90.0
    asked = limits("cpu-only", known["a"])
    found = check_findings.findings(
        {name: {"host": one} for name, one in known.items()},
        {name: asked | {"address": f"10.0.0.{n}"} for n, name in enumerate(known)},
    )
    assert [(one["id"], one["host"]) for one in found if one["id"].startswith("clock")] == [("clock", "b")]


def test_drivers_are_compared(tmp_path: Path) -> None:
    known = {name: facts("pcie-a100", tmp_path / name) for name in ("a", "b")}
    known["b"]["driver"] = known["b"]["driver"] | {"running": "550.127.05"}
    found = check_differences.differences(known, dict.fromkeys(known, limits("pcie-a100", known["a"])))
    assert [(one["id"], one["host"]) for one in found] == [("driver-differs", "b")]


def test_ranks_are_compared_with_those_of_their_services(tmp_path: Path) -> None:
    known = facts("hgx-h100-infiniband", tmp_path)
    drivers = {"a": "570.1", "b": "570.1", "c": "580.2", "d": "580.2", "e": "575.3"}
    services = {"a": ["chat"], "b": ["chat"], "c": ["embed"], "d": ["embed", "chat"], "e": ["embed", "chat"]}
    ranks = {
        host: known | {"driver": {"running": version, "loaded": True}} for host, version in drivers.items()
    }
    asked = {
        host: limits("hgx-h100-infiniband", known) | {"services": names} for host, names in services.items()
    }
    found = check_differences.differences(ranks, asked)
    assert [(one["id"], one["host"], one["what"]) for one in found] == [
        ("driver-differs", "d", "its driver: 580.2; on a, b: 570.1"),
        ("driver-differs", "e", "its driver: 575.3; on a, b: 570.1"),
    ]


def test_ranks_that_are_alike_do_not_differ(tmp_path: Path) -> None:
    known = {name: facts("hgx-h100-infiniband", tmp_path / name) for name in ("a", "b")}
    asked = limits("hgx-h100-infiniband", known["a"])
    assert check_differences.differences(known, dict.fromkeys(known, asked)) == []


def test_gpus_are_no_matter_where_none_serve(tmp_path: Path) -> None:
    known = facts("pcie-a100", tmp_path, changes=BROKEN["driver-not-running"])
    assert found_in(known, limits("pcie-a100", known) | {"gpus": 0, "hca": ""}) == []


def test_what_is_fine(fit: dict[str, Any]) -> None:
    ours = {"port": 30000, "process": "python (7)", "container": "headfirst-engine"}
    for changed in (
        {"os": "ubuntu-22.04", "python": "3.10.12"},
        {"os": "ubuntu-24.04", "python": "3.10.12"},
        {"nics": [nic | {"kind": "veth"} for nic in fit["nics"]]},  # the way out of a container
        {"disk_free_bytes": 20 * 10**9, "disk_used_bytes": 80 * 10**9},  # weights that are there already
        {"busy_ports": [ours]},
    ):
        assert found_in(fit | changed, limits("cpu-only", fit)) == [], changed


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"os": "debian-11"}, "os"),
        ({"python": "3.9.2"}, "python"),
        ({"architecture": "ppc64le"}, "architecture"),
        ({"uid": 1000}, "sudo"),
        ({"memory_bytes": 63 * 10**9}, "memory"),
        ({"disk_free_bytes": 99 * 10**9}, "disk"),
        ({"clock_offset_s": -31.0}, "clock"),
        ({"nics": []}, "address"),
        ({"busy_ports": [{"port": 30000, "process": "nginx (7)", "container": ""}]}, "port"),
        ({"unreachable_peers": ["10.0.0.2"]}, "peer"),
        ({"cut_ports": [{"peer": "10.0.0.2", "port": 5000, "rejected": False}]}, "firewall"),
        ({"cut_ports": [{"peer": "10.0.0.2", "port": 5000, "rejected": True}]}, "firewall-rejects"),
    ],
)
def test_each_fault_is_found_alone(fit: dict[str, Any], changed: dict[str, Any], expected: str) -> None:
    assert found_in(fit | changed, limits("cpu-only", fit)) == [expected]


def test_every_finding_says_why_and_what_to_do() -> None:
    for rule in check_rules.RULES:
        assert rule.severity in ("error", "warning")
        assert rule.why.endswith(".") and rule.fix.strip()


def test_hosts_are_compared(fit: dict[str, Any]) -> None:
    facts = {
        "a": fit | {"hostname": "node1"},
        "b": fit | {"hostname": "node1", "architecture": "aarch64"},
        "c": fit | {"hostname": "c"},
    }
    found = check_findings.compare(facts, {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.1"})
    assert [(one["id"], one["host"]) for one in found] == [
        ("hostname", "a"),
        ("hostname", "b"),
        ("address-unique", "a"),
        ("address-unique", "c"),
        ("architecture", "a"),
        ("architecture", "b"),
        ("architecture", "c"),
    ]


# Texts as OpenSSH 9.2, sudo 1.9 and ansible-core 2.19 wrote them.
@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (
            {"unreachable": True, "msg": "ssh: connect to host 192.0.2.1 port 22: Connection refused"},
            "reachability",
        ),
        ({"unreachable": True, "msg": "ssh: Could not resolve hostname nowhere.invalid"}, "reachability"),
        ({"unreachable": True, "msg": "nosudo@10.213.20.12: Permission denied (publickey)."}, "ssh-login"),
        ({"unreachable": True, "msg": "Host key verification failed."}, "host-key"),
        ({"failed": True, "msg": "Task failed: Missing sudo password"}, "sudo"),
        ({"failed": True, "msg": "The module interpreter '/usr/bin/python7' was not found."}, "python"),
        ({"failed": True, "module_stderr": "/bin/sh: 1: /usr/bin/python3: not found", "msg": ""}, "python"),
        ({"failed": True, "msg": "OSError: [Errno 28] No space left on device"}, "disk"),
        ({"failed": True, "msg": "Something new"}, "facts"),
    ],
)
def test_a_host_without_facts_is_explained(result: dict[str, Any], expected: str) -> None:
    found = check_findings.silent_host("node1", result)
    assert (found["id"], found["severity"], found["host"]) == (expected, "error", "node1")
    assert found["fix"]


def seen(**changes: Any) -> dict[str, Any]:
    folder = {"exists": True, "type": "nfs4", "shared": True, "leads_out": False, "shape": "1"}
    return folder | {"files": 3, "bytes": 2 * 10**9} | changes


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize(
    ("folder", "said"),
    [
        (
            seen(exists=False, type="ext4", files=0, bytes=0),
            "no files in /share/m (ext4); a has them on nfs4",
        ),
        (seen(leads_out=True), "symbolic links"),
        (seen(shape="2", files=2), "2 files of 2.0 GB; a has 3 files"),
    ],
)
def test_a_rank_that_does_not_see_the_model_folder_is_named(
    folder: dict[str, Any], said: str, required: bool
) -> None:
    facts = {"a": {"model_folder": seen()}, "b": {"model_folder": folder}, "c": {"model_folder": seen()}}
    asked = {host: {"model_folder": "/share/m", "model_folder_required": required} for host in facts}
    [found] = check_differences.model_folder(facts, asked)
    assert (found["host"], found["severity"]) == ("b", "error" if required else "warning")
    assert said in found["what"]
    assert "Mount" in found["fix"]


def test_a_folder_of_the_head_alone_is_no_finding() -> None:
    local = seen(type="ext4", shared=False)
    facts = {"a": {"model_folder": local}, "b": {"model_folder": local | {"exists": False}}}
    asked = {host: {"model_folder": "/data/m", "model_folder_required": False} for host in facts}
    assert check_differences.model_folder(facts, asked) == []
