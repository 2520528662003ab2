"""What a rollout leaves on a host, wherever a run ends, and what a person reads when it fails.

Real: the action, its steps and decisions, the module container_generations. Fixtures: Docker, other modules.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import generations_model
import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.headfirst.serving.plugins.action.rollout import PROOFS, ActionModule
from ansible_collections.headfirst.serving.plugins.module_utils import container_spec
from ansible_collections.headfirst.serving.plugins.plugin_utils import service_change
from ansible_collections.headfirst.serving.plugins.plugin_utils.rollout_steps import BACKUP, WATCH, HostSteps
from generations_model import Container, Host, Killed, World, with_defaults

NAME = "headfirst-page"
SPEC = json.dumps({"restart_policy": "unless-stopped"})


def generation(fingerprint: str) -> str:
    seen = {"current": {"generation": "", "running": False}, "generations": {}}
    rank = {"host": "a", "rank": 0, "fingerprint": fingerprint, "seen": seen}
    return str(service_change.change([rank])["generation"])


class Node:
    """A host whose containers answer unless they are `broken`; each step may be a run's last."""

    def __init__(self, folder: Path) -> None:
        self.host: Host = World(folder).hosts["a"]
        self.broken: set[str] = set()
        self.refused: set[str] = set()
        self.data = "first"
        self.steps = 1000
        self.log: list[str] = []

    def ask(self, module: str, arguments: dict[str, Any], check: bool) -> dict[str, Any]:
        state = arguments.get("state", "read")
        self.log.append(f"{module.split('.')[-1]} {state}")
        if not self.steps:
            raise Killed
        self.steps -= 1
        current = self.host.current(NAME)
        if module == BACKUP:
            if state == "restored":
                self.data = arguments["backup"]
            return {"changed": True, "backup": self.data}
        if module in PROOFS:
            assert current
            assert current.running
            bad = current.labels["fingerprint"] in self.refused
            return {"failed": True, "msg": "the key is refused"} if bad else {"changed": False}
        answer = self.host.ask(module, {"name": NAME, **arguments}, check=check)
        container = self.host.current(arguments.get("name", NAME))
        if container and container.labels["fingerprint"] in self.broken:
            if module == WATCH:
                return {**answer, "ready": False, "running": False}
            if state == "started":
                self.data = "spoiled"
        return answer


def roll(node: Node, fingerprint: str, *, check: bool = False, **arguments: Any) -> dict[str, Any]:
    """One run of the action to the container with a fingerprint."""
    labels = {"fingerprint": fingerprint, "replica": "page"}
    given = {
        "name": NAME,
        "title": "The page",
        "spec": {"labels": labels, "restart_policy": "unless-stopped"},
        "fingerprint": fingerprint,
        "record": {"url": "http://h"},
        "ready_timeout": 1,
        "proofs": [{"module": "ansible.builtin.uri", "args": {}}],
        **arguments,
    }
    action = object.__new__(ActionModule)
    action._task = SimpleNamespace(check_mode=check)
    action._host, action._variables = "a", {}

    def execute(module: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        assert ("ansible_no_target_syslog" in task_vars) == (module in PROOFS), (
            "a key is in the host's syslog"
        )
        return node.ask(module, module_args, check)

    action._execute_module = execute
    return action.act(with_defaults(**given))


def serves(node: Node) -> str:
    """The fingerprint of the container that serves; no other one runs."""
    current = node.host.current(NAME)
    assert current and [one for one in node.host.found if one.running] == [current]
    assert current.policy == "unless-stopped"
    return str(current.labels["fingerprint"])


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(generations_model.os, "fsync", lambda _: None)
    return Node(tmp_path)


def test_the_second_run_changes_nothing(node: Node) -> None:
    assert roll(node, "one")["changed"]
    assert serves(node) == "one"
    assert not roll(node, "one")["changed"]


def test_the_version_before_stays_and_the_one_before_it_goes(node: Node) -> None:
    for fingerprint in ("one", "two", "three"):
        assert roll(node, fingerprint)["changed"]
        assert serves(node) == fingerprint
    assert {one.labels["fingerprint"] for one in node.host.found} == {"two", "three"}


def test_check_mode_changes_nothing_and_waits_for_nothing(node: Node) -> None:
    roll(node, "one")
    before = [(one.name, one.running) for one in node.host.found]
    node.log.clear()
    assert roll(node, "two", check=True)["changed"]
    assert [(one.name, one.running) for one in node.host.found] == before
    assert not [step for step in node.log if step.startswith(("container_watch", "uri"))]


def test_what_is_refused_before_the_stop_leaves_what_serves(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    roll(node, "one")
    ask = node.ask

    def refuse(module: str, arguments: dict[str, Any], check: bool) -> dict[str, Any]:
        if arguments.get("state") == "created":
            return {"failed": True, "msg": "Image x is not on this node."}
        return ask(module, arguments, check)

    monkeypatch.setattr(node, "ask", refuse)
    with pytest.raises(AnsibleActionFail, match=r"^Image x is not on this node\.$"):
        roll(node, "two")
    assert serves(node) == "one"


def test_the_first_start_that_fails_has_nothing_to_return_to(node: Node) -> None:
    node.broken.add("one")
    with pytest.raises(AnsibleActionFail) as raised:
        roll(node, "one")
    assert raised.value.message.splitlines() == [
        "The page is not ready: it ended.",
        "  | bye",
        "Is the port of http://h free?",
        "The log of the failed start, on its host:",
        f"docker logs {NAME}",
    ]
    assert not [one for one in node.host.found if one.running]
    node.broken.clear()
    assert roll(node, "one")["changed"]
    assert serves(node) == "one"


@pytest.mark.parametrize(("kind", "words"), [("broken", "it ended"), ("refused", "the key is refused")])
def test_what_served_before_serves_again(node: Node, kind: str, words: str) -> None:
    roll(node, "one")
    getattr(node, kind).add("two")
    with pytest.raises(AnsibleActionFail) as raised:
        roll(node, "two")
    assert words in raised.value.message
    assert raised.value.message.endswith(
        "The previous version serves again.\nThe log of the failed start, on its host:\n"
        f"docker logs {NAME}.{generation('two')}"
    )
    assert serves(node) == "one"
    assert f"{NAME}.{generation('two')}" in [one.name for one in node.host.found]


def test_where_none_answers_the_message_names_both(node: Node) -> None:
    roll(node, "one")
    node.broken |= {"one", "two"}
    with pytest.raises(AnsibleActionFail, match="was started again, but it does not serve either") as raised:
        roll(node, "two")
    assert raised.value.message.endswith(f"docker logs {NAME}.{generation('two')}")


def test_a_supervisor_that_cannot_be_resumed_hides_no_failure(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> None:
        raise AnsibleActionFail("no room on the disk")

    roll(node, "one")
    monkeypatch.setattr(HostSteps, "release", fails)
    with pytest.raises(AnsibleActionFail, match="no room on the disk"):
        roll(node, "one")
    node.broken = {"two"}
    with pytest.raises(AnsibleActionFail, match="The page is not ready: it ended") as failed:
        roll(node, "two")
    assert "no room on the disk" in failed.value.message
    assert "The previous version serves again." in failed.value.message


def test_a_proof_that_fails_on_what_runs_already_stops_it(node: Node) -> None:
    """The next run starts it again, as one that begins with a stop does."""
    roll(node, "one")
    node.refused.add("one")
    with pytest.raises(AnsibleActionFail, match="the key is refused\nThe log"):
        roll(node, "one")
    assert not [one for one in node.host.found if one.running]


@pytest.mark.parametrize("broken", [False, True])
def test_what_has_the_address_stops_and_returns_where_the_new_one_fails(node: Node, broken: bool) -> None:
    labels = {"headfirst.generation": "0123456789ab", "headfirst.rank": "0", "headfirst.ranks": "1"}
    labels |= {container_spec.SPEC_JSON_LABEL: SPEC, "fingerprint": "other", "replica": "other"}
    other = Container(node.host, "headfirst-other", labels)
    other.running = True
    node.host.found.append(other)
    (node.host.root / "records/headfirst-other").mkdir(parents=True)
    (node.host.root / "records/headfirst-other/0123456789ab.json").write_text('{"url": "http://h"}')
    if broken:
        node.broken.add("one")
    with pytest.raises(AnsibleActionFail, match="was started again") if broken else nullcontext():
        roll(node, "one")
    current = node.host.current(NAME)
    assert current
    assert (current.running, other.running) == (not broken, broken)
    assert not broken or other.policy == "unless-stopped"


def test_data_are_backed_up_after_the_stop_and_restored_before_the_return(node: Node) -> None:
    roll(node, "one")
    node.broken.add("two")
    node.log.clear()
    with pytest.raises(AnsibleActionFail, match="serves again"):
        roll(node, "two", backup={"folder": "/b"})
    assert node.data == "first"
    assert node.log.index("container stopped") < node.log.index("webui_backup taken")
    node.log.clear()
    roll(node, "one", backup={"folder": "/b"})
    assert "webui_backup taken" not in node.log


@pytest.mark.parametrize("broken", [False, True])
def test_a_run_that_was_killed_at_any_step_is_completed_by_the_next(tmp_path: Path, broken: bool) -> None:
    for steps in range(30):
        node = Node(tmp_path / str(steps))
        roll(node, "one")
        if broken:
            node.broken.add("two")
        node.steps = steps
        try:
            roll(node, "two")
        except AnsibleActionFail:
            break
        except Killed:
            node.steps = 1000
            with pytest.raises(AnsibleActionFail, match="serves again") if broken else nullcontext():
                roll(node, "two")
            assert serves(node) == ("one" if broken else "two")
        else:
            break
    assert 8 < steps < 29


@pytest.mark.parametrize(
    ("variables", "ranks", "words"),
    [
        ({"ansible_play_hosts": ["a"], "ansible_play_batch": ["a"]}, 2, "without --limit"),
        ({"ansible_play_hosts": ["a", "b"], "ansible_play_batch": ["a"]}, 2, "remove `serial`"),
        ({"ansible_play_hosts": ["a", "b"], "ansible_play_batch": ["a", "b"]}, 2, "ANSIBLE_FORKS=2"),
    ],
)
def test_ranks_that_would_wait_for_each_other_for_ever_are_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, Any], ranks: int, words: str
) -> None:
    monkeypatch.setattr("ansible.context.CLIARGS", {"forks": 1})
    action = object.__new__(ActionModule)
    action._host, action._variables = "a", variables
    with pytest.raises(AnsibleActionFail, match=words):
        action.act({"ranks": ranks, "state": "serving"})
