"""What role weights decides from what the hosts report, where each serves some of the layers."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils.weights_choice import choose
from weights_role import NOTHING, role

LAYERS = {"10.0.0.1": "0-2", "10.0.0.2": "3-5"}
HOLDS = {"whole": "w", "answers": True, "is_whole": False, "pinned": "p", "in_place": False, "changed": []}
FIRST = {**HOLDS, "digest": "da", "files": {"1": "11", "both": "00"}}
SECOND = {**HOLDS, "digest": "db", "files": {"2": "22", "both": "00"}}
WHOLE = {**SECOND, "is_whole": True, "files": {"1": "11", "2": "22", "both": "00"}}
OPTIONS: dict[str, Any] = {
    "name": "m-bf16", "source_name": "m", "convert_to_bf16": True, "layers": LAYERS, "hidden_layers": 6,
}  # fmt: skip


def decided(
    looks: dict[str, dict[str, Any]], host: str = "a", *, key: str = "", **given: Any
) -> dict[str, Any]:
    """What a host does that serves some of the layers."""
    return role(looks, host, **{**OPTIONS, **given}).decide(key=key)


def words_after(argv: list[str], option: str) -> list[str]:
    return [argv[at + 1] for at, word in enumerate(argv) if word == option]


def test_hosts_with_their_own_layers_of_one_checkpoint_are_done() -> None:
    assert not decided({"a": FIRST, "b": SECOND})["lacking"]
    other = decided({"a": FIRST, "b": {**SECOND, "whole": "other"}}, "b")
    assert other["lacking"] and other["in_place_used"]
    assert decided({"a": FIRST, "b": SECOND}, layers={})["lacking"]


@pytest.mark.parametrize(
    ("head", "own", "folder", "model"),
    [(FIRST, NOTHING, "m", ["/srv/m"]), (WHOLE, NOTHING, "m-bf16", []), (NOTHING, WHOLE, "m", ["/srv/m"])],
    ids=["from the source", "the head's whole copy is passed on", "another host's copy is not"],
)
def test_where_a_host_gets_its_layers(
    head: dict[str, Any], own: dict[str, Any], folder: str, model: list[str]
) -> None:
    argv = decided({"a": head, "b": own}, host="b")["argv"]
    assert argv[2] == f"/var/lib/headfirst/models/{folder}"
    assert words_after(argv, "--member") == ["10.0.0.1", "10.0.0.2"]
    assert words_after(argv, "--layers") == ["0-2", "3-5"]
    assert words_after(argv, "--hidden-layers") == ["6"]
    assert words_after(argv, "--model") == model


def test_only_the_head_gets_the_file_of_the_key() -> None:
    for host, files in (("a", ["/run/headfirst/jobs/weights-m-bf16.key"]), ("b", [])):
        argv = decided({"a": NOTHING, "b": NOTHING}, host, key="0" * 64)["argv"]
        assert words_after(argv, "--signed-by") == ["0" * 64]
        assert words_after(argv, "--signing-key") == files
    alone = decided({"a": NOTHING}, members=[])["argv"]
    assert "--signed-by" not in alone


def test_the_head_and_the_number_of_layers_are_needed() -> None:
    assert decided({"b": WHOLE}, "b")["refusal"] == ""
    assert "The head, weights_members[0], signs" in decided({"b": NOTHING}, "b")["refusal"]
    looks = {"a": NOTHING, "b": NOTHING}
    assert decided(looks)["refusal"] == ""
    assert "weights_hidden_layers" in decided(looks, hidden_layers=0)["refusal"]


def test_hosts_that_share_a_folder_have_everything() -> None:
    looks = {"a": NOTHING, "b": NOTHING}
    assert words_after(role(looks, "b", **OPTIONS).status_argv, "--layers") == ["3-5"]
    assert words_after(role(looks, "b", shared=True, **OPTIONS).status_argv, "--layers") == []
    assert words_after(decided(looks, shared=True)["argv"], "--layers") == []


@pytest.mark.parametrize(("both", "words"), [("00", ""), ("99", "Files that differ: both. Remove them on a")])
def test_what_two_hosts_share_is_compared(both: str, words: str) -> None:
    looks = {"a": {**FIRST, "files": {"1": "11", "both": both}}, "b": SECOND}
    assert words in decided(looks)["differs"] and bool(words) == bool(decided(looks)["differs"])
    assert decided(looks, "b")["differs"] == ""


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
    found = chosen({}, {}, {})  # clean hosts in check mode
    assert (found["holders"], found["order"], found["digest"], found["files"]) == ([], [], "", {})


def test_a_folder_is_served_in_place_where_all_hosts_see_all_of_it() -> None:
    missing, sees = {**NOTHING, "in_place": False}, {"exists": True, "leads_out": False}
    both = {"n1": sees, "n2": sees}
    assert chosen(missing, missing, folders=both)["all_see_it"]
    assert chosen({}, {}, folders=both)["all_see_it"]
    for other in ({}, {**sees, "exists": False}, {**sees, "leads_out": True}):
        assert not chosen(missing, missing, folders={"n1": sees, "n2": other})["all_see_it"]
    assert not chosen(missing, {**missing, "occupied": True}, folders=both)["all_see_it"]
