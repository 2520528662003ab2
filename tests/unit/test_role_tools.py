"""The tools that keep the roles' defaults, argument_specs and READMEs in step."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "tools" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    ],
)
def test_differences_are_found(tmp_path: Path, defaults: str, options: str, expected: list[str]) -> None:
    assert load("role_defaults").differences(role(tmp_path, defaults, SPECS % options)) == expected


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
    text = load("role_readme").readme("engine", specs)
    assert "| `engine_port` | list of int | `[1]` | A `port` \\| two One of `1`. |" in text
    assert "| `engine_image` | str | required | Image. |" in text
    assert "    - role: headfirst.serving.engine\n      vars:\n        engine_image: …  # str\n```" in text


def test_check_fails_for_a_stale_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = load("role_readme")
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
