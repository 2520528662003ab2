"""The tools that keep the roles' defaults, argument_specs and READMEs in step."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import role_defaults
import role_readme
import yaml
from ansible_collections.headfirst.serving.plugins.action.await_ranks import ActionModule
from headfirst.decide.cluster.settings import ClusterSettings, ServiceSettings

REPOSITORY = Path(__file__).resolve().parents[2]


def role(folder: Path, defaults: str, options: str) -> Path:
    path = folder / "engine"
    for part, text in {"defaults/main": defaults, "meta/argument_specs": options}.items():
        file = path / f"{part}.yml"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    return path


SPECS = "argument_specs: {main: {short_description: Text, description: [Text.], options: {%s}}}"


@pytest.mark.parametrize(
    ("defaults", "options", "expected"),
    [
        ("engine_port: 1", "engine_port: {type: int, default: 1}", []),
        ("", "engine_port: {type: int, required: true}", []),
        ("engine_port: 1", "", ["engine: engine_port is in defaults but not in argument_specs"]),
        ("", "engine_port: {type: int}", ["engine: engine_port is neither required nor in defaults"]),
        (
            "engine_port: 1",
            "engine_port: {type: int, default: 2}",
            ["engine: engine_port defaults to 1, argument_specs says 2"],
        ),
        (
            "engine_port: 1",
            "engine_port: {type: int, required: true}",
            ["engine: engine_port is required, so its default can never be used"],
        ),
        ("", "port: {type: int, required: true}", ["engine: port lacks the prefix engine_"]),
        (
            "engine_port: 1",
            "engine_port: {type: int, default: 1}}}, stop: {options: {engine_port: {type: int, default: 2}",
            ["engine: engine_port defaults to 1, stop says 2"],
        ),
    ],
)
def test_differences_are_found(tmp_path: Path, defaults: str, options: str, expected: list[str]) -> None:
    assert role_defaults.differences(role(tmp_path, defaults, SPECS % options)) == expected


def test_the_defaults_of_the_repository_agree() -> None:
    assert role_defaults.main() == 0


def test_another_default_of_a_setting_names_the_places_that_do_not_follow() -> None:
    tool = role_defaults
    settings = ServiceSettings().model_dump() | ClusterSettings().model_dump()
    defaults = dict(tool._defaults(sorted((REPOSITORY / "roles").iterdir())))
    assert tool.setting_differences(defaults, settings) == []
    found = "\n".join(
        tool.setting_differences(
            defaults, settings | {"ready_timeout": 1800, "router_port": 8500, "supervisor_port": 5030}
        )
    )
    assert re.findall(r"^\S+", found, re.MULTILINE) == [
        "await_ranks.timeout", "engine_ready_timeout", "router_url", "supervisor_port",
    ]  # fmt: skip


def test_an_action_has_the_defaults_of_its_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = role_defaults
    assert tool.action_differences(["await_ranks", "job", "host_facts"]) == []
    changed = {**ActionModule.ARGUMENTS, "timeout": {"type": "int", "default": 900}}
    monkeypatch.setattr(ActionModule, "ARGUMENTS", changed)
    (text,) = tool.action_differences(["await_ranks"])
    assert "timeout" in text and "900" in text


@pytest.mark.parametrize(
    "row", ["| 8001 (`router_port`) | x |", "| 8001（`router_port`） | x |", "| `router_port` | 8001 | x |"]
)
def test_another_number_on_a_page_is_found(tmp_path: Path, row: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"| a | b |\n|---|---|\n{row}\n")
    tool = role_defaults
    assert tool.page_differences(page, {"router_port": 8001}) == []
    (text,) = tool.page_differences(page, {"router_port": 8000})
    assert text.endswith("router_port is 8001, its default 8000")


@pytest.mark.parametrize(
    "row",
    [
        "| an engine hangs for `hang_timeout` seconds (180) | stops it |",
        "| 引擎挂起：`hang_timeout` 秒（180）内 | 停止 |",
        "| Prometheus | the host's `address`, `hang_timeout` (180) |",
        "The limit is `hang_timeout` (180).",
    ],
)
def test_a_number_beside_the_name_of_a_setting_is_its_default(tmp_path: Path, row: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(row)
    assert role_defaults.page_differences(page, {"hang_timeout": 180}) == []
    (text,) = role_defaults.page_differences(page, {"hang_timeout": 360})
    assert text.endswith("hang_timeout is 180, its default 360")


def test_two_roles_with_one_purpose_have_one_default() -> None:
    same = {"docker_engine_log_max_size": "50m", "podman_engine_log_max_size": "50m"}
    assert role_defaults.pair_differences(same) == []
    (text,) = role_defaults.pair_differences(same | {"docker_engine_log_max_size": "100m"})
    assert "podman_engine_log_max_size defaults to '50m', docker_engine_log_max_size to '100m'" in text


def test_readme_lists_every_variable_and_shows_how_to_use_the_role() -> None:
    specs = yaml.safe_load(
        SPECS
        % "engine_port: {type: list, elements: int, default: [1], description: A C(port) | two, choices: [1]}"
    )
    specs["argument_specs"]["main"]["options"]["engine_image"] = {
        "type": "str",
        "required": True,
        "description": "Image.",
    }
    text = role_readme.readme("engine", specs)
    assert "| `engine_port` | list of int | `[1]` | A `port` \\| two One of `1`. |" in text
    assert "| `engine_image` | str | required | Image. |" in text
    assert "    - role: headfirst.serving.engine\n      vars:\n        engine_image: …  # str\n```" in text


def test_check_fails_for_a_stale_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = role_readme
    path = role(tmp_path, "", SPECS % "")
    monkeypatch.setattr(tool, "ROLES", tmp_path)
    monkeypatch.setattr(sys, "argv", ["role_readme.py", "--check"])
    assert tool.main() == 1
    assert not (path / "README.md").exists()
    monkeypatch.setattr(sys, "argv", ["role_readme.py"])
    assert tool.main() == 0
    monkeypatch.setattr(sys, "argv", ["role_readme.py", "--check"])
    assert tool.main() == 0


def test_every_roles_description_is_its_own_and_stands_in_both_files() -> None:
    described = {}
    for path in sorted((REPOSITORY / "roles").iterdir()):
        info = yaml.safe_load((path / "meta" / "main.yml").read_text())["galaxy_info"]
        specs = yaml.safe_load((path / "meta" / "argument_specs.yml").read_text())["argument_specs"]
        assert info["description"] == specs["main"]["short_description"], path.name
        assert info["description"] not in described, f"{path.name} and {described[info['description']]}"
        described[info["description"]] = path.name


def test_every_key_of_apt_is_written_by_the_module() -> None:
    """A repository of packages names a key file, and its role gets that file from apt_key_file alone."""
    signed = [
        path for path in REPOSITORY.glob("roles/*/templates/*.sources.j2") if "Signed-By" in path.read_text()
    ]
    assert len(signed) >= 4
    for template in signed:
        found = re.search(r"Signed-By: \{\{ (\w+) \}\}", template.read_text())
        assert found, template
        tasks = [path.read_text() for path in (template.parents[1] / "tasks").glob("*.yml")]
        users = [task for text in tasks for task in text.split("\n- name:") if found[1] in task]
        assert users and all("headfirst.serving.apt_key_file:" in task for task in users), template
