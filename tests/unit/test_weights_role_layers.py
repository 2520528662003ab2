"""What role weights decides from what the hosts report, where each serves some of the layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.headfirst.serving.plugins.plugin_utils.weights_choice import choose

ROLE = Path(__file__).resolve().parents[2] / "roles" / "weights"
ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2"}
LAYERS = {"10.0.0.1": "0-2", "10.0.0.2": "3-5"}
NOTHING = {"digest": "", "whole": "", "answers": False, "is_whole": False, "pinned": "", "files": {}}
HOLDS = {"whole": "w", "answers": True, "is_whole": False, "pinned": "p", "in_place": False}
FIRST = {**HOLDS, "digest": "da", "files": {"1": "11", "both": "00"}}
SECOND = {**HOLDS, "digest": "db", "files": {"2": "22", "both": "00"}}
WHOLE = {**SECOND, "is_whole": True, "files": {"1": "11", "2": "22", "both": "00"}}


def hosts_of(look: dict[str, Any]) -> dict[str, Any]:
    """Variables of all hosts, which report `look`."""
    reports = {
        name: {**NOTHING, "in_place": False, "address": address, **look}
        for name, address in ADDRESSES.items()
    }
    return {name: {"__weights_state": report} for name, report in reports.items()}


def value(
    expression: str,
    looks: dict[str, dict[str, Any]],
    host: str = "a",
    *,
    shared: bool = False,
    **variables: Any,
) -> Any:
    """What the expression is on a host; `looks` are their reports, `shared`: all write into one folder."""
    loader = DataLoader()
    own = loader.load_from_file(str(ROLE / "vars" / "main.yml"), trusted_as_template=True)
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    reports = {
        name: {**NOTHING, "in_place": False, "address": ADDRESSES[name], **look}
        for name, look in looks.items()
    }
    known = {
        "weights_model": "/srv/m",
        "weights_source": "path",
        "weights_name": "m-bf16",
        "weights_source_name": "m",
        "weights_convert_to_bf16": True,
        "weights_token": "x",
        "weights_members": list(ADDRESSES.values()),
        "weights_address": ADDRESSES[host],
        "weights_layers": LAYERS,
        "weights_hidden_layers": 6,
        "ansible_play_hosts": list(looks),
        "inventory_hostname": host,
        "ansible_check_mode": False,
        "__weights_state": reports[host],
        "__weights_folders": {"model": {}, "place": {}, "error": ""},
        "__weights_writers": {name: "a" if shared else name for name in looks},
        "hostvars": {name: {"__weights_state": reports[name]} for name in looks},
    }
    return Templar(loader, variables={**defaults, **own, **known, **variables}).template(
        trust_as_template("{{ " + expression + " }}")
    )


def words_after(argv: list[str], option: str) -> list[str]:
    return [argv[at + 1] for at, word in enumerate(argv) if word == option]


def test_hosts_with_their_own_layers_of_one_checkpoint_are_done() -> None:
    assert value("__weights_choice.holders", {"a": FIRST, "b": SECOND}) == list(ADDRESSES.values())
    assert value("__weights_choice.holders", {"a": FIRST, "b": {**SECOND, "whole": "other"}}) == ["10.0.0.1"]
    assert value("__weights_choice.holders", {"a": FIRST, "b": SECOND}, weights_layers={}) == ["10.0.0.1"]


def test_a_part_is_brought_from_the_source() -> None:
    argv = value("__weights_argv", {"a": FIRST, "b": NOTHING}, host="b")
    assert argv[2] == "/var/lib/headfirst/models/m"
    assert words_after(argv, "--member") == ["10.0.0.1", "10.0.0.2"]
    assert words_after(argv, "--layers") == ["0-2", "3-5"]
    assert words_after(argv, "--hidden-layers") == ["6"]
    assert words_after(argv, "--model") == ["/srv/m"]


def test_the_heads_whole_copy_is_passed_on() -> None:
    argv = value("__weights_argv", {"a": WHOLE, "b": NOTHING}, host="b")
    assert argv[2] == "/var/lib/headfirst/models/m-bf16"
    assert words_after(argv, "--member") == ["10.0.0.1", "10.0.0.2"]
    assert words_after(argv, "--layers") == ["0-2", "3-5"]
    assert words_after(argv, "--model") == []


def test_what_another_host_reports_to_hold_is_not_passed_on_as_the_heads() -> None:
    argv = value("__weights_argv", {"a": NOTHING, "b": WHOLE}, host="b")
    assert argv[2] == "/var/lib/headfirst/models/m"
    assert words_after(argv, "--member") == ["10.0.0.1", "10.0.0.2"]
    assert words_after(argv, "--model") == ["/srv/m"]


def test_only_the_head_gets_the_file_of_the_key() -> None:
    hosts = hosts_of(NOTHING)
    hosts["a"]["__weights_key"] = {"stdout": "0" * 64}
    for host, files in (("a", ["/run/headfirst/jobs/weights-m-bf16.key"]), ("b", [])):
        argv = value("__weights_argv", {"a": NOTHING, "b": NOTHING}, host, hostvars=hosts)
        assert words_after(argv, "--signed-by") == ["0" * 64]
        assert words_after(argv, "--signing-key") == files
    alone = value("__weights_argv", {"a": NOTHING}, weights_members=[])
    assert "--signed-by" not in alone


def test_a_play_without_the_head_brings_nothing() -> None:
    assert value("__weights_refusals", {"b": WHOLE}, "b") == []
    [refusal] = value("__weights_refusals", {"b": NOTHING}, "b")
    assert "The head, weights_members[0], signs" in refusal


def test_hosts_that_share_a_folder_have_everything() -> None:
    assert value("__weights_parts", {"a": NOTHING, "b": NOTHING}) == LAYERS
    assert value("__weights_parts", {"a": NOTHING, "b": NOTHING}, shared=True) == {}
    assert words_after(value("__weights_argv", {"a": NOTHING, "b": NOTHING}, shared=True), "--layers") == []


@pytest.mark.parametrize(("both", "same"), [("00", True), ("99", False)])
def test_what_two_hosts_share_is_compared(both: str, same: bool) -> None:
    main = yaml.safe_load((ROLE / "tasks" / "main.yml").read_text())
    (proof,) = (
        task["ansible.builtin.assert"]["that"] for task in main if task["name"].startswith("Prove that all")
    )
    looks = {"a": {**FIRST, "files": {"1": "11", "both": both}}, "b": SECOND}
    assert all(value(that, looks, host) for that in proof for host in looks) == same


def chosen(*reports: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    """The choice for hosts n1, n2, … with the addresses 1, 2, …; every host has a folder of its own."""
    states = {f"n{number}": report and {**report, "address": str(number)}
              for number, report in enumerate(reports, 1)}  # fmt: skip
    given = {
        "members": ["1", "2", "3"],
        "writers": {name: name for name in states},
        "parts": {},
        "folders": {name: {} for name in states},
    }
    return choose(states, **{**given, **arguments})


def test_hosts_take_part_in_the_order_of_the_members() -> None:
    missing = {**NOTHING, "in_place": False}
    assert chosen(missing, missing, missing, members=["2", "3", "1"])["order"] == ["2", "3", "1"]
    assert chosen(missing, {}, missing)["order"] == ["1", "3"]
    shared = {"n1": "n1", "n2": "n1", "n3": "n3"}
    assert chosen(missing, missing, missing, writers=shared)["order"] == ["1", "3"]


def test_a_folder_that_is_served_in_place_takes_part_at_the_head_alone() -> None:
    served, missing = {**WHOLE, "in_place": True}, {**NOTHING, "in_place": False}
    assert chosen(missing, served, missing)["order"] == ["1", "3"]
    found = chosen(served, served, missing)
    assert (found["order"], found["head_gives"], found["holders"]) == (["1", "3"], True, ["1", "2"])


def test_a_copy_of_another_revision_than_the_head_is_asked_for_counts_as_none() -> None:
    head = {**NOTHING, "in_place": False, "asked": "p"}
    assert chosen(head, {**WHOLE, "pinned": "p"}, {**WHOLE, "pinned": "old"})["holders"] == ["2"]
    assert chosen({}, WHOLE, {**WHOLE, "digest": "other"})["holders"] == ["2"]
    assert chosen({}, WHOLE, WHOLE, members=["1", "2"])["holders"] == ["2"]


def test_in_check_mode_on_clean_hosts_nobody_reports() -> None:
    found = chosen({}, {}, {})
    assert (found["holders"], found["order"], found["digest"], found["files"]) == ([], [], "", {})


def test_a_folder_is_served_in_place_where_all_hosts_see_all_of_it() -> None:
    missing, sees = {**NOTHING, "in_place": False}, {"exists": True, "leads_out": False}
    both = {"n1": sees, "n2": sees}
    assert chosen(missing, missing, folders=both)["all_see_it"]
    assert chosen({}, {}, folders=both)["all_see_it"]
    for other in ({}, {**sees, "exists": False}, {**sees, "leads_out": True}):
        assert not chosen(missing, missing, folders={"n1": sees, "n2": other})["all_see_it"]
    assert not chosen(missing, {**missing, "occupied": True}, folders=both)["all_see_it"]


def test_the_number_of_layers_is_needed() -> None:
    looks = {"a": NOTHING, "b": NOTHING}
    assert value("__weights_refusals", looks) == []
    assert "weights_hidden_layers" in value("__weights_refusals", looks, weights_hidden_layers=0)[0]
