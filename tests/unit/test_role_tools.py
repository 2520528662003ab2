"""The tools that keep the roles' defaults, argument_specs and READMEs in step."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
import role_defaults
import role_readme
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]


def role(folder: Path, defaults: str, options: str) -> Path:
    path = folder / "roles" / "engine"
    for part, text in {"defaults/main": defaults, "meta/argument_specs": options}.items():
        file = path / f"{part}.yml"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    return path


SETTINGS = role_defaults.SETTINGS
VALUE = re.compile(r"\d+|false|true|/var/lib/headfirst/models|/data/models")
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
            ["roles/engine/meta/argument_specs.yml:1: engine: engine_port defaults to 1, main says 2"],
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
            ["roles/engine/meta/argument_specs.yml:1: engine: engine_port defaults to 1, stop says 2"],
        ),
    ],
)
def test_differences_are_found(tmp_path: Path, defaults: str, options: str, expected: list[str]) -> None:
    found = role_defaults.differences(role(tmp_path, defaults, SPECS % options))
    assert [str(item).removeprefix(f"{tmp_path}/") for item in found] == expected


def test_the_defaults_of_the_repository_agree() -> None:
    assert role_defaults.main() == 0


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files that have defaults."""
    for folder in ("roles", "docs", "plugins/modules"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder)
    monkeypatch.setattr(role_defaults, "ROOT", tmp_path)
    monkeypatch.setattr(role_defaults, "ROLES", tmp_path / "roles")
    monkeypatch.setattr(role_defaults, "MODULES", tmp_path / "plugins" / "modules")
    return tmp_path


def test_fix_writes_another_default_in_all_its_places(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = {name: value + 1 for name, value in role_defaults.SETTINGS.items() if type(value) is int}
    texts = {"weights_dir": "/data/models", "prometheus_retention": "20d", "keep_fp8": True}
    monkeypatch.setattr(role_defaults, "SETTINGS", role_defaults.SETTINGS | numbers | texts)
    before = {path: path.read_text("utf-8") for path in checkout.rglob("*.*") if path.suffix != ".pyc"}
    assert role_defaults.main() == 1
    printed = capsys.readouterr().out
    before_s, after_s = (settings["ready_timeout"] for settings in (SETTINGS, role_defaults.SETTINGS))
    assert f"/roles/engine/defaults/main.yml:36: engine_ready_timeout defaults to {before_s}" in printed
    monkeypatch.setattr(sys, "argv", ["role_defaults.py", "--fix"])
    assert role_defaults.main() == 0
    assert role_defaults.all_differences() == []
    changed = {
        (path.relative_to(checkout).as_posix(), line, written)
        for path, text in before.items()
        for line, written in zip(text.splitlines(), path.read_text("utf-8").splitlines(), strict=True)
        if line != written
    }
    router = f"http://127.0.0.1:{SETTINGS['router_port'] + 1}"
    # Only values changed; comments and layout are those of before.
    assert all(VALUE.sub("", line) == VALUE.sub("", written) for _, line, written in changed)
    assert {
        ("roles/router/defaults/main.yml", f"router_url: {router}"),
        ("roles/router/meta/argument_specs.yml", f"        default: {router}"),
        ("roles/weights/defaults/main.yml", "weights_keep_fp8: true"),
        ("plugins/modules/rollout.py", f"    default: {after_s}"),
        ("docs/monitoring.md", "| `prometheus_retention` | `20d` | how long figures are kept |"),
    } <= {(path, written) for path, _, written in changed}


def test_two_roles_with_one_purpose_have_one_default(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = checkout / "roles/docker_engine/defaults/main.yml"
    path.write_text(path.read_text("utf-8").replace("50m", "100m"), "utf-8")
    found = [str(difference) for difference in role_defaults.all_differences()]
    assert "podman_engine_log_max_size defaults to '50m', what it follows to '100m'" in found[0]
    monkeypatch.setattr(sys, "argv", ["role_defaults.py", "--fix"])
    assert role_defaults.main() == 0
    assert "max_size: 100m" in (checkout / "roles/podman_engine/defaults/main.yml").read_text("utf-8")


def test_what_only_a_person_can_write_is_left(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = checkout / "roles/engine/defaults/main.yml"
    path.write_text(path.read_text("utf-8") + "engine_more: 1\n", "utf-8")
    monkeypatch.setattr(sys, "argv", ["role_defaults.py", "--fix"])
    assert role_defaults.main() == 1


@pytest.mark.parametrize(
    "row", ["| 8001 (`router_port`) | x |", "| 8001（`router_port`） | x |", "| `router_port` | 8001 | x |"]
)
def test_another_number_on_a_page_is_found(tmp_path: Path, row: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"| a | b |\n|---|---|\n{row}\n")
    tool = role_defaults
    assert tool.page_differences(page, {"router_port": 8001}) == []
    (text,) = tool.page_differences(page, {"router_port": 8000})
    assert str(text).endswith("router_port is 8001, its default 8000")


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
    assert str(text).endswith("hang_timeout is 180, its default 360")


def test_readme_lists_every_variable_and_shows_the_play_of_the_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = yaml.safe_load(
        SPECS
        % "engine_port: {type: list, elements: int, default: [1], description: A C(port) | two, choices: [1]}"
    )
    specs["argument_specs"]["main"]["options"]["engine_image"] = {
        "type": "str",
        "required": True,
        "description": "Image.",
    }
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "converge.yml").write_text(
        "---\n- hosts: all\n  vars_files: [v.yml]\n  roles: []\n"
    )
    (tmp_path / "engine" / "v.yml").write_text("---\nengine_image: one\n")
    monkeypatch.setattr(role_readme, "SCENARIOS", tmp_path)
    text = role_readme.readme("engine", specs)
    assert "| `engine_port` | list of int | `[1]` | A `port` \\| two One of `1`. |" in text
    assert "| `engine_image` | str | required | Image. |" in text
    assert "```yaml\n- hosts: all\n  vars:\n    engine_image: one\n  roles: []\n```" in text
    (tmp_path / "engine" / "example.yml").write_text("---\n- hosts: two\n")
    assert "```yaml\n- hosts: two\n```" in role_readme.readme("engine", specs)


def test_check_fails_for_a_stale_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = role_readme
    path = role(tmp_path, "", SPECS % "")
    monkeypatch.setattr(tool, "ROLES", path.parent)
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
