"""No key of a node's answer reaches ansible-core through an action of this collection, whichever it is."""

from __future__ import annotations

import copy
import importlib
import json
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible import constants, context
from ansible.errors import AnsibleAction, AnsibleActionFail
from ansible.executor import task_result
from ansible_collections.headfirst.serving.plugins.action import comm_report
from ansible_collections.headfirst.serving.plugins.plugin_utils.gated_action import GatedAction
from test_comm_rules import met
from weights_role import variables

FOLDER = Path(__file__).parents[2] / "plugins" / "action"
PACKAGE = "ansible_collections.headfirst.serving.plugins.action"
ACTIONS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
WAY = {"ansible_ssh_common_args": "-o ProxyCommand=touch"}
# All that ansible-core or its callbacks read of a result, beside what each action declares.
INTERNAL: dict[str, Any] = {
    **{
        name: {"host_name": "node2", "host_vars": WAY}
        for name in [
            *constants.INTERNAL_RESULT_KEYS,
            *constants.RESTRICTED_RESULT_KEYS,
            *(name for name in task_result.CLEAN_EXCEPTIONS if name.startswith("_ansible")),
            *task_result._SUB_PRESERVE,
        ]
    },
    "ansible_facts": WAY,
    "ansible_stats": {"data": {"node2": {}}, "per_host": False},
    "_ansible_notify": ["Restart"],
    "_ansible_facts_cacheable": True,
    "_ansible_item_result": True,
    "_ansible_retry": True,
    "ansible_job_id": "1",
    "ansible_host": "192.0.2.66",
    "unreachable": True,
    "results": [{"add_host": {}}],
    "diff": {"before": ""},
    "exception": "x",
    "warnings": ["x"],
    "deprecations": [{"msg": "x"}],
    "invocation": {},
    **WAY,
}
# Arguments that a specification alone does not describe.
GIVEN: dict[str, Any] = {
    "rollout": {
        "name": "headfirst-page",
        "record": {"url": "http://h"},
        "fingerprint": "f",
        "ready_timeout": 1,
    },
    "weights": {"step": "folders", "variables": variables()},
}
GENERATION = "0" * 12  # all patterns of specifications are those of generations
SHELL = [
    f"state ended\nexit success exited 0\nresult {json.dumps(INTERNAL)}\n",
    f"state ended\nexit exit-code exited 1\nresult {json.dumps({**INTERNAL, 'msg': 'no'})}\n",
    f"state ended\nexit success exited 0\nprogress {json.dumps(INTERNAL)}\nadd_host {{}}\n",
    json.dumps(INTERNAL),
    "-1\n",
    "5\n",
]


def sample(rule: Any, folder: Path, hostile: bool = False) -> Any:
    """A value that a specification of an answer or an argument allows; `hostile`: and what it does not."""
    rule = {"type": rule} if isinstance(rule, str) else rule
    kind = rule.get("type", "str")
    if "choices" in rule:
        return rule["choices"][0]
    if kind == "dict" and "options" in rule:
        return named(rule["options"], folder, hostile)
    if kind == "dict" and "pattern" in rule:
        return {GENERATION: sample(rule["elements"], folder, hostile)}
    if "pattern" in rule:
        return GENERATION
    if kind == "dict":
        return {"node1": sample(rule["elements"], folder, hostile) if "elements" in rule else dict(INTERNAL)}
    if kind == "list":
        return [sample({**rule, "type": rule["elements"]}, folder, hostile)]
    if kind == "path":
        (folder / "file").write_text("12345")
        return str(folder / "file")
    return {"str": "a", "int": 0, "float": 0.5, "bool": True}[kind]


def named(spec: Any, folder: Path, hostile: bool = False) -> dict[str, Any]:
    """A value for each name of a specification."""
    values = {name: sample(rule, folder, hostile) for name, rule in spec.items()}
    return {**copy.deepcopy(INTERNAL), **values} if hostile else values


@pytest.fixture
def act(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run an action by its name against what a node answers."""
    monkeypatch.setattr(context, "CLIARGS", {"forks": 10})
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))

    def run(name: str, answers: dict[str, Any], stdout: str, arguments: dict[str, Any] | None = None) -> Any:
        kind = importlib.import_module(f"{PACKAGE}.{name}").ActionModule
        action = object.__new__(kind)
        given = named(kind.ARGUMENTS or {}, tmp_path) if arguments is None else arguments
        action._task = SimpleNamespace(args=given, check_mode=False, async_val=0, action=name, _uuid="u")
        action._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=str(tmp_path)))
        action._used_interpreter = "#!/usr/bin/python3"
        action._execute_module = lambda module, **_: copy.deepcopy(answers[module])
        action._low_level_execute_command = lambda _command, **_: {
            "rc": 0,
            "stdout": stdout,
            "stderr": "",
            **INTERNAL,
        }
        folders = {"model": {}, "place": {"id": "1"}, "error": ""}
        registered = {"node1": {"__weights_folders": {"folders": folders}}}
        play = {"ansible_play_hosts": ["node1"], "hostvars": registered}
        return action.run(None, {"inventory_hostname": "node1", **play})

    return run


def keys(value: Any) -> Iterator[str]:
    """Every name in a document."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield str(name)
            yield from keys(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from keys(item)


def harmless(result: dict[str, Any]) -> bool:
    return not [name for name in keys(result) if name in INTERNAL or "ansible_" in name]


@pytest.mark.parametrize("name", ACTIONS)
def test_every_action_stands_on_the_gate_and_has_no_way_round_it(name: str) -> None:
    kind = importlib.import_module(f"{PACKAGE}.{name}").ActionModule
    assert issubclass(kind, GatedAction)
    assert "run" not in vars(kind)
    assert not set(INTERNAL) & set(kind.RETURNS)
    with (FOLDER / f"{name}.py").open("rb") as file:
        words = {token.string for token in tokenize.tokenize(file.readline)}
    assert not words & {"_execute_module", "_low_level_execute_command", "exec_command", "ActionBase"}


@pytest.mark.parametrize("name", ACTIONS)
def test_no_key_of_ansible_comes_out_of_an_action(name: str, act: Callable[..., Any], tmp_path: Path) -> None:
    kind = importlib.import_module(f"{PACKAGE}.{name}").ActionModule
    top = {module: {**INTERNAL, **named(spec, tmp_path)} for module, spec in kind.ANSWERS.items()}
    deep = {module: named(spec, tmp_path, hostile=True) for module, spec in kind.ANSWERS.items()}
    failed = {module: {**INTERNAL, "failed": True, "msg": "no"} for module in kind.ANSWERS}
    if top:
        assert harmless(act(name, top, "1700000000.5\n", GIVEN.get(name))), (
            "what the module may return comes out, without the rest"
        )
    for answers in (top, deep, failed):
        for stdout in SHELL:
            try:
                assert harmless(act(name, answers, stdout, GIVEN.get(name)))
            except AnsibleAction as error:
                assert harmless(error.result)
            except (KeyError, TypeError, AttributeError):
                assert not kind.ANSWERS  # it reads what other tasks registered, which INTERNAL alone is not


@pytest.mark.parametrize("stdout", SHELL)
def test_what_a_host_prints_of_its_weights_is_a_status_of_its_own(
    stdout: str, act: Callable[..., Any]
) -> None:
    with pytest.raises(AnsibleActionFail, match="What node1 reports of its weights is refused"):
        act("weights", {}, stdout, {**GIVEN["weights"], "step": "status"})


@pytest.mark.parametrize("raises", [False, True])
def test_an_action_that_returns_more_than_it_declares_fails(raises: bool) -> None:
    class Careless(GatedAction):
        def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
            if arguments["raises"]:
                raise AnsibleActionFail("no", result={"ansible_facts": {}})
            return {"changed": False, "ansible_facts": {}}

    action = object.__new__(Careless)
    action._task = SimpleNamespace(args={"raises": raises}, check_mode=False, async_val=0, action="careless")
    action._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir="/tmp"))
    with pytest.raises(AnsibleActionFail, match="returns ansible_facts, which it does not declare"):
        action.run(None, {"inventory_hostname": "node1"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"address": "10.0.0.66"}, r"node2 is refused: reached\[0\].address is none of"),
        ({"state": "fine"}, "state is none of"),
        ({"source": "node1"}, "it has source in"),
        ({"port": 10**9}, "port is not an integer from 1 to 65535"),
    ],
)
def test_a_host_reports_its_own_connections_alone(
    change: dict[str, Any], words: str, act: Callable[..., Any]
) -> None:
    hosts = met()
    assert act("comm_report", {}, "", {"hosts": hosts})["report"]["port"]
    hosts["node2"]["reach"]["reached"][0].update(change)
    with pytest.raises(AnsibleActionFail, match=words):
        act("comm_report", {}, "", {"hosts": hosts})


def test_a_port_that_a_host_does_not_have_is_no_error_of_ours(act: Callable[..., Any]) -> None:
    hosts = met()
    hosts["node2"]["reach"]["reached"][0]["port"] = 9
    assert act("comm_report", {}, "", {"hosts": hosts})["report"]["pairs"]
    assert comm_report.ActionModule.RETURNS


def test_line_ends_of_a_terminal_are_line_ends(act: Callable[..., Any]) -> None:
    """ssh has a terminal where a command reads no data."""
    assert act("upload", {}, "5\r\n")["size"] == 5
