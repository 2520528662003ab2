"""What hosts report of themselves and of their containers is proven before a decision reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.headfirst.serving.plugins.action.host_facts import HOST
from ansible_collections.headfirst.serving.plugins.filter.services import FilterModule
from ansible_collections.headfirst.serving.plugins.module_utils import shared_folder
from ansible_collections.headfirst.serving.plugins.plugin_utils import node_answer
from headfirst.node.weights.cli import main
from recorded_hosts import SHAPES, facts
from together import together
from weights_role import role


@pytest.mark.parametrize("shape", ["cpu-only", "hgx-h100-infiniband"])
def test_the_facts_of_a_host_pass_as_they_are(shape: str, tmp_path: Path) -> None:
    host = facts(shape, tmp_path / "host", peers=("10.0.0.2",))
    folder = shared_folder.model_folder(str(SHAPES))
    host = {name: value for name, value in host.items() if not name.startswith("clock_")}  # the action's
    host |= {"disk_shared": False, "model_folder": folder}
    assert node_answer.named(host, HOST) == host
    assert node_answer.named({**host, "model_folder": None}, HOST)["model_folder"] is None


@together(
    "bad",
    [
        {"generations": {"../../models/M/a": {"worked_at": 9.0, "rank": 0, "ranks": 1}}},
        {"generations": {"a" * 12: {"worked_at": "late", "rank": 0, "ranks": 1}}},
        {
            "generations": {
                "a" * 12: {"worked_at": 9.0, "rank": 0, "ranks": 1, "versions": {"v": {"served_at": "late"}}}
            }
        },
        {"generations": []},
        {"current": {"generation": "a|headfirst-engine", "running": True}},
        {"current": None},
    ],
)
def test_a_generation_that_is_a_path_or_a_pattern_is_refused(bad: dict[str, Any]) -> None:
    decide = FilterModule().filters()["service_kept"]
    seen = {
        "current": {"generation": "b" * 12, "running": True, "rank": 0},
        "generations": {
            "b" * 12: {"worked_at": 5.0, "rank": 0, "ranks": 1},
            "c" * 12: {"worked_at": 3.0, "rank": 0, "ranks": 1},
        },
    }
    rank = {"host": "node1", "replica": "engine", "rank": 0, "fingerprint": "f", "seen": seen}
    assert decide([rank])
    with pytest.raises(AnsibleFilterError, match="The generations of node1 are refused"):
        decide([{**rank, "seen": {**seen, **bad}}])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"address": "10.0.0.1"}, "it speaks for 10.0.0.1"),
        ({"asked": "c0ffee"}, "it speaks for the head"),
        ({"add_host": {}}, "it has add_host"),
        ({"files": ["a"]}, "files is not an object"),
        ({"digest": None}, "digest is not text"),
    ],
)
def test_a_host_reports_of_its_own_weights_alone(
    change: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["status", "--served-dir", str(tmp_path), "--model", "org/m", "--address", "10.0.0.2", "--is-head"]
    main(argv)
    printed = capsys.readouterr().out
    status = json.loads(printed)
    head = role({}, "b", members=[])
    assert head.status(printed) == status
    assert head.status("") == {}  # in check mode on a clean host
    with pytest.raises(ValueError, match=words):
        (role({}, "b") if "asked" in change else head).status(json.dumps({**status, **change}))
