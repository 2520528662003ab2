"""What role host_tuning finds on hosts that the lab cannot make as well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.template import trust_as_template
from ansible_collections.headfirst.serving.plugins.module_utils import host_firewall, host_tuning
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource
from host_tuning_role import ROLE, rules, templar
from recorded_hosts import RecordedSource

GONE = {"LoadState": "not-found", "ActiveState": "inactive", "ConditionTimestampMonotonic": "0"}
IDLE = {"LoadState": "loaded", "ActiveState": "inactive", "ConditionTimestampMonotonic": "0"}
RUNS = {"LoadState": "loaded", "ActiveState": "active", "ConditionTimestampMonotonic": "7"}
MASKED = {"LoadState": "masked", "ActiveState": "inactive", "ConditionTimestampMonotonic": "0"}
IN_A_CONTAINER = {**IDLE, "ConditionTimestampMonotonic": "7", "ConditionResult": "no"}


class Commands(HostSource):
    """A host below a folder whose commands print what a test says."""

    def __init__(self, root: Path, printed: dict[str, str] | None = None) -> None:
        super().__init__(str(root))
        self.printed = printed or {}

    def run(self, *argv: str) -> str:
        return self.printed.get(" ".join(argv), "")


def write(root: Path, path: str, text: str) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


@pytest.mark.parametrize(
    ("chrony", "timesyncd", "expected"),
    [
        (GONE, GONE, ("", False, False)),
        (RUNS, GONE, ("chrony", True, False)),
        (IDLE, GONE, ("chrony", False, False)),
        (IDLE, RUNS, ("systemd-timesyncd", True, False)),
        (MASKED, IDLE, ("systemd-timesyncd", False, False)),
        (GONE, MASKED, ("systemd-timesyncd", False, True)),
        (GONE, IN_A_CONTAINER, ("systemd-timesyncd", False, True)),
    ],
)
def test_what_keeps_the_clock(chrony: Any, timesyncd: Any, expected: tuple[str, bool, bool]) -> None:
    units = dict.fromkeys(host_tuning.CLOCKS, GONE) | {"chrony": chrony, "systemd-timesyncd": timesyncd}
    found = host_tuning.clock(units)
    assert (found["service"], found["running"], found["refused"]) == expected


def test_units_are_told_apart_by_their_order(tmp_path: Path) -> None:
    command = f"systemctl show --property {host_tuning.PROPERTIES} chrony.service ntp.service"
    shown = "LoadState=loaded\nActiveState=active\n\nLoadState=not-found\nActiveState=inactive\n"
    found = host_tuning.units(Commands(tmp_path, {command: shown}), "chrony", "ntp")
    assert {name: unit["LoadState"] for name, unit in found.items()} == {
        "chrony": "loaded",
        "ntp": "not-found",
    }
    assert host_tuning.units(Commands(tmp_path), "chrony", "ntp") == {"chrony": {}, "ntp": {}}


@pytest.mark.parametrize(
    ("active", "enabled", "expected"),
    [("active", "enabled", True), ("active", "disabled", False), ("inactive", "enabled", False)],
)
def test_a_service_keeps_running(active: str, enabled: str, expected: bool) -> None:
    assert host_tuning.keeps_running({"ActiveState": active, "UnitFileState": enabled}) is expected


def test_sources_limits_and_the_digest_of_the_rules(tmp_path: Path) -> None:
    sources = host_firewall.sources(["127.0.0.1", "127.9.9.9"])
    assert sources == {"127.0.0.1": "127.0.0.1", "127.9.9.9": "127.0.0.1"}
    command = "prlimit --memlock=8388608:8388608 --nofile=20000:20000 echo set"
    assert not host_tuning.limits_refused(Commands(tmp_path, {command: "set\n"}), "8192", 20000)
    assert host_tuning.limits_refused(Commands(tmp_path), "unlimited", 20000)
    rule = 'tcp dport @closed reject with icmpx admin-prohibited comment "headfirst 0123abc"'
    assert host_firewall.digest(f"table inet headfirst {{\n\t\t{rule}\n}}") == "0123abc"
    assert host_firewall.digest("") == ""


def test_files_that_do_not_hold_the_wanted_text(tmp_path: Path) -> None:
    for path in ("/same", "/other", "/surplus"):
        write(tmp_path, path, "text\n")
    wanted = {"/same": "text\n", "/other": "new\n", "/missing": "text\n", "/surplus": "", "/gone": ""}
    assert host_tuning.outdated(HostSource(str(tmp_path)), wanted) == ["/other", "/missing", "/surplus"]


def test_names_that_need_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"resolves": "10.0.0.1", "elsewhere": "10.0.0.99", "node1.example": "127.0.1.1"}
    monkeypatch.setattr(host_tuning, "_first", lambda name, like: known.get(name, ""))
    write(tmp_path, "/proc/sys/kernel/hostname", "node1\n")
    written = f"{host_tuning.HOSTS_BEGIN}\n10.0.0.5 kept\n10.0.0.6 moved\n{host_tuning.HOSTS_END}\n"
    write(tmp_path, "/etc/hosts", f"127.0.0.1 localhost\n{written}10.0.0.8 theirs\n")
    wanted = {
        "resolves": "10.0.0.1",
        "elsewhere": "10.0.0.2",
        "nowhere": "10.0.0.3",
        "node1.example": "10.0.0.4",
        "kept": "10.0.0.5",
        "moved": "10.0.0.7",
    }
    assert host_tuning.hosts(HostSource(str(tmp_path)), wanted) == {
        "present": {"kept": "10.0.0.5", "moved": "10.0.0.6"},
        "needed": {"elsewhere": "10.0.0.2", "nowhere": "10.0.0.3", "kept": "10.0.0.5", "moved": "10.0.0.7"},
    }


def test_names_are_really_asked_for() -> None:
    names = {"localhost": "127.0.0.1", "no-such-name.invalid": "10.0.0.1"}
    assert host_tuning.unresolved(names) == {"no-such-name.invalid"}
    assert host_tuning.unresolved({"localhost": "10.0.0.1"}) == {"localhost"}


def test_an_iommu_that_translates_for_gpus(tmp_path: Path) -> None:
    gpu = "/sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:07:00.0/iommu_group/type"
    for kind, expected in (("DMA-FQ", ["0000:07:00.0"]), ("identity", [])):
        source = RecordedSource("hgx-a100-roce", tmp_path / kind, {"files": {gpu: kind}})
        assert host_tuning.peer_to_peer(source) == {"acs_bridges": [], "translated": expected}


def test_peers_and_ports_in_one_notation() -> None:
    peers = ["fd00::2", "10.0.0.10", "10.0.0.9/32", "10.1.2.3/16", "10.0.0.10"]
    assert host_firewall.normal_peers(peers) == ["10.0.0.9", "10.0.0.10", "10.1.0.0/16", "fd00::2"]
    assert host_firewall.normal_ports(["32768-60999", "5000"]) == [(5000, 5000), (32768, 60999)]
    for port in ("0", "65536", "9-8", "ssh", "", "1-2-3"):
        with pytest.raises(ValueError):
            host_firewall.normal_ports([port])


ADDED = """\
Added user rules (see 'ufw status' for running firewall):
ufw allow 22/tcp
ufw allow from 10.0.0.1 comment 'headfirst'
ufw allow from 10.0.0.2 comment 'headfirst'
ufw allow from 10.0.0.3 comment 'mine'
"""


def test_rules_of_ufw(tmp_path: Path) -> None:
    source, peers = Commands(tmp_path, {"ufw show added": ADDED}), ["10.0.0.2", "10.0.0.3"]
    write(tmp_path, "/etc/ufw/ufw.conf", "# Set to yes\nENABLED=no\n")
    assert host_firewall.ufw(source, peers) == {"active": False, "missing": [], "surplus": []}
    write(tmp_path, "/etc/ufw/ufw.conf", "# Set to yes\nENABLED=yes\n")
    assert host_firewall.ufw(source, peers) == {
        "active": True,
        "missing": ["10.0.0.3"],
        "surplus": ["10.0.0.1"],
    }


def test_the_zone_of_firewalld(tmp_path: Path) -> None:
    peers = ["10.0.0.2"]
    assert not host_firewall.firewalld(Commands(tmp_path), peers)["active"]
    running = {"firewall-cmd --state": "running\n"}
    assert host_firewall.firewalld(Commands(tmp_path, running), peers)["missing"] == peers
    added = {**running, "firewall-cmd --zone=headfirst --list-sources": "10.0.0.2 10.0.0.1\n"}
    assert host_firewall.firewalld(Commands(tmp_path, added), peers)["surplus"] == ["10.0.0.1"]


def test_chains_that_drop_what_comes_in() -> None:
    of_input = {"family": "inet", "table": "filter", "hook": "input", "name": "input"}
    listed: list[dict[str, Any]] = [
        {"metainfo": {"version": "1.0.6"}},
        {"chain": {**of_input, "policy": "drop"}},
        {"chain": {**of_input, "name": "first", "policy": "accept"}},
        {"chain": {**of_input, "hook": "forward", "name": "forward", "policy": "drop"}},
        {"chain": {"family": "inet", "table": "filter", "name": "more"}},
    ]
    chains = json.dumps({"nftables": listed})
    assert host_firewall.dropping(chains) == ["inet filter input"]
    assert host_firewall.dropping("") == []


def notes(look: dict[str, Any], **variables: Any) -> list[str]:
    return list(templar(look, **variables).template(trust_as_template("{{ __host_tuning_notes }}")))


def sources(*addresses: str) -> dict[str, Any]:
    """What a host found out about where its connections to node1 (10.0.0.1) come from."""
    return {"__host_tuning_state": {"tuning": {"sources": dict(zip(["10.0.0.1"], addresses, strict=False))}}}


@pytest.mark.parametrize(
    ("workers", "admitted"),
    [
        ([sources("10.0.0.2"), sources("10.0.0.3")], "10.0.0.2, 10.0.0.3"),
        # Its route to the head starts at another of its addresses.
        ([sources("10.0.0.2"), sources("172.16.0.3")], "10.0.0.2, 10.0.0.3, 172.16.0.3"),
        # One has no route, one was left out of the run.
        ([sources(), {}], "10.0.0.2, 10.0.0.3"),
    ],
)
def test_every_rank_is_admitted_from_where_it_connects(workers: list[Any], admitted: str) -> None:
    names = ["node1", "node2", "node3"]
    rules = templar(
        {},
        inventory_hostname="node1",
        ansible_play_hosts_all=names,
        hostvars=dict(zip(names, [sources("10.0.0.1"), *workers], strict=True)),
        host_tuning_hosts={"node1": "10.0.0.1"},
        host_tuning_peers=["10.0.0.2", "10.0.0.3"],
        host_tuning_rendezvous_ports=["5000"],
        host_tuning_closed_ports=["32768-60999", 5000],
    ).template(trust_as_template((ROLE / "templates" / "firewall.nft.j2").read_text()))
    assert f"auto-merge\n    elements = {{ {admitted} }}" in rules.partition("set peers6")[0]
    assert "elements = { 32768-60999, 5000 }" in rules


@pytest.mark.parametrize(
    "reported",
    [
        {"10.0.0.1": '10.0.0.9 } }\ninclude "/etc/other.nft"\ntable inet x { set y {'},
        {"10.0.0.1": "0.0.0.0/0"},
        {"10.0.0.1": "10.0.0.2-10.0.0.255"},
        {"10.0.0.1": "fe80::1%} }"},
        {"10.0.0.1": ["10.0.0.9"]},
        ["10.0.0.9"],
    ],
)
def test_a_host_reports_one_address_and_no_rules(reported: Any) -> None:
    host = {"__host_tuning_state": {"tuning": {"sources": reported}}}
    role = templar(
        {},
        inventory_hostname="node1",
        ansible_play_hosts_all=["node1", "node2"],
        hostvars={"node1": {}, "node2": host},
        host_tuning_hosts={"node1": "10.0.0.1"},
        host_tuning_rendezvous_ports=["5000"],
    )
    with pytest.raises(AnsibleError, match="The addresses that node2 reports are refused: "):
        role.template(trust_as_template((ROLE / "templates" / "firewall.nft.j2").read_text()))


def test_the_firewall_can_be_left_out() -> None:
    look = {"digest": "", "outdated": [], "firewall": False}
    given = {"host_tuning_rendezvous_ports": ["5000"], "host_tuning_closed_ports": ["6000"]}
    differs = trust_as_template("{{ __host_tuning_firewall_differs }}")
    left_out = templar(look, host_tuning_firewall=False, **given)
    assert left_out.template(trust_as_template("{{ __host_tuning_closed }}")) == []
    assert not left_out.template(differs)


def test_nothing_is_told_of_a_host_where_all_is_well() -> None:
    assert notes({}, host_tuning_peers=["10.0.0.2"], host_tuning_ntp_servers=["10.0.0.3"]) == []


@pytest.mark.parametrize(
    ("look", "variables", "words"),
    [
        ({"acs_bridges": ["0000:02:00.0", "0000:12:00.0"]}, {}, "bridges: 0000:02:00.0, 0000:12:00.0."),
        ({"translated": ["0000:07:00.0"] * 8}, {}, "of 8 GPUs"),
        ({"limits_refused": True}, {}, "memlock is to be unlimited, nofile 1048576"),
        (
            {"clock": {"service": "ntpsec", "running": False, "refused": True}},
            {},
            "systemd must not start ntpsec",
        ),
        (
            {"clock": {"service": "ntpsec", "running": True, "refused": False}},
            {"host_tuning_ntp_servers": ["10.0.0.3"]},
            "ntpsec keeps the clock",
        ),
        (
            {"digest": "", "outdated": [], "firewall": True},
            {
                "host_tuning_rendezvous_ports": ["7100", "15000-17000"],
                "ansible_check_mode": False,
                "inventory_hostname": "node1",
                "ansible_play_hosts_all": ["node1"],
                "hostvars": {},
            },
            "these ports stay open to everybody: 15000-17000, 7100.",
        ),
        ({"dropping": ["inet filter input"]}, {"host_tuning_peers": ["10.0.0.2"]}, "inet filter input."),
    ],
)
def test_what_is_told(look: dict[str, Any], variables: dict[str, Any], words: str) -> None:
    (note,) = notes(look, **variables)
    assert words in note


RANKS = "headfirst-ranks.slice"


def test_the_slice_is_there_before_the_rules() -> None:
    """systemd has a slice inside those that its name begins with; nft resolves it when it loads."""
    unit = rules("firewall.service.j2", host_tuning_ranks_slice=RANKS)
    assert f"Wants={RANKS}\nAfter={RANKS}\n" in unit
    assert "RefuseManualStop=yes" in rules("ranks.slice.j2", host_tuning_ranks_slice=RANKS)
    text = rules("firewall.nft.j2", host_tuning_ranks_slice=RANKS)
    assert text.count('socket cgroupv2 level 2 "headfirst.slice/headfirst-ranks.slice" reject') == 2


@pytest.mark.parametrize(
    ("variables", "filters"),
    [
        ({}, False),
        ({"host_tuning_ranks_slice": RANKS}, True),
        ({"host_tuning_ranks_slice": RANKS, "host_tuning_firewall": False}, False),
    ],
)
def test_a_slice_alone_needs_the_firewall(variables: dict[str, Any], filters: bool) -> None:
    known = {"inventory_hostname": "n", "ansible_play_hosts_all": ["n"], "hostvars": {}}
    role = templar({"digest": "", "firewall": False}, **known, **variables)
    assert role.template(trust_as_template("{{ __host_tuning_firewall_differs }}")) is filters
