"""A release needs a signed tag, equal versions, a clean tree; tests/long/test_release_files.py makes one."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from documented import ROOT, blocks, commands
from headfirst.common.errors import InputError
from releases import VERSION, git, made_key, sbom, set_up, source, tool

TAG = f"v{VERSION}"
FOLDERS = [ROOT / "plugins" / name for name in ("connection", "lookup", "modules")]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_key(tmp_path_factory.mktemp("key") / "id_ed25519")


def documented(word: str) -> str:
    """The commands of docs/release.md that have this word."""
    (found,) = [one.text for one in blocks("sh") if one.page.name == "release.md" and word in one.text]
    return found.replace("v0.1.0", TAG)


def test_the_versions_of_this_checkout_agree() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)


def test_each_module_has_its_line_for_ansible_test() -> None:
    """`./test long` runs ansible-test, which would find it much later."""
    lines = (ROOT / "tests" / "sanity" / "ignore-2.19.txt").read_text().splitlines()
    modules = {
        f"plugins/{path.parent.name}/{path.name}" for folder in FOLDERS for path in folder.glob("*.py")
    }
    assert {line.split()[0] for line in lines if "missing-gplv3-license" in line} == modules


def test_no_file_of_the_collection_has_a_name_that_ansible_test_refuses() -> None:
    folders = [ROOT / name for name in ("plugins", "py/headfirst/common", "py/headfirst/node")]
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    assert len(paths) > 100
    names = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name) and node.id == "_"
    ]
    assert names == []


def test_the_documented_options_are_there() -> None:
    lines = [words for text in ("checkout", "--sign ~") for words in commands(documented(text))]
    given = [tool.parser().parse_args(words[2:]) for words in lines if "tools/release.py" in words]
    assert [(one.untagged, bool(one.sign)) for one in given] == [(True, False), (False, True)]


def test_an_sbom_that_breaks_the_schema_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sbom, "_packages", lambda _: iter(()))
    assert json.loads(sbom.build(ROOT, VERSION, 1))["bomFormat"] == "CycloneDX"
    monkeypatch.setattr(sbom.JsonV1Dot6, "output_as_string", lambda *_, **__: '{"bomFormat": "CycloneDX"}')
    with pytest.raises(ValueError, match="does not match its schema"):
        sbom.build(ROOT, VERSION, 1)


@pytest.fixture
def small(tmp_path: Path, key: Path) -> Path:
    """The three files with a version, as a commit without a tag."""
    folder = tmp_path / "small"
    (folder / "py/headfirst").mkdir(parents=True)
    (folder / "py/headfirst/__init__.py").write_text('__version__ = "1.2.3"\n')
    (folder / "galaxy.yml").write_text("version: 1.2.3\n")
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 - 2026-11-30\n\n## 1.2.2 - 2026-10-01\n")
    git(folder, "init", "--quiet")
    commit(folder)
    set_up(folder, key, tmp_path / "signers")
    return folder


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Change")


def test_the_package_is_built_from_the_files_of_the_release(small: Path, tmp_path: Path) -> None:
    (small / "pyproject.toml").write_text(
        '[project]\nname = "small"\nversion = "1.2.3"\n'
        '[tool.hatch.build.targets.wheel]\npackages = ["py/headfirst"]\n'
    )
    tool._build_package(small, tmp_path / "dist", 1)
    assert sorted(path.name for path in (tmp_path / "dist").iterdir()) == [
        "small-1.2.3-py2.py3-none-any.whl",
        "small-1.2.3.tar.gz",
    ]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("py/headfirst/__init__.py", '__version__ = "1.2.4"\n'),
        ("galaxy.yml", "version: 1.2.4\n"),
        ("CHANGELOG.md", "## 1.2.4 - 2026-11-30\n"),
        ("CHANGELOG.md", "## 1.2.3, soon\n"),
    ],
)
def test_versions_that_differ_are_refused(small: Path, file: str, text: str) -> None:
    (small / file).write_text(text)
    with pytest.raises(InputError, match=r"versions differ .*1\.2\.3"):
        source.version(small, tagged=False)


def test_a_changelog_without_a_date_is_for_trials(small: Path) -> None:
    (small / "CHANGELOG.md").write_text("## 1.2.3 (unreleased)\n")
    assert source.version(small, tagged=False) == "1.2.3"
    with pytest.raises(InputError, match="is unreleased"):
        source.version(small, tagged=True)


def test_only_a_signed_tag_at_head_is_released(small: Path, tmp_path: Path) -> None:
    stranger = made_key(tmp_path / "stranger").with_suffix(".pub")
    with pytest.raises(InputError, match=r"no tag v1\.2\.3"):
        source.version(small, tagged=True)
    git(small, "tag", "--message", "1.2.3", "v1.2.3")
    with pytest.raises(InputError, match="does not verify"):
        source.version(small, tagged=True)
    tag = ("tag", "--force", "--sign", "--message", "1.2.3", "v1.2.3")
    git(small, "-c", f"user.signingkey={stranger}", *tag)
    with pytest.raises(InputError, match="does not verify"):
        source.version(small, tagged=True)
    git(small, *tag)
    assert source.version(small, tagged=True) == "1.2.3"
    (small / "more").touch()
    commit(small)
    with pytest.raises(InputError, match="not at HEAD"):
        source.version(small, tagged=True)


@pytest.mark.parametrize("name", ["galaxy.yml", "new"])
def test_a_changed_tree_is_refused(small: Path, name: str, tmp_path: Path) -> None:
    (small / name).write_text("version: 1.2.3 # changed\n")
    with pytest.raises(InputError, match=f"1 changed or untracked files, such as {name}"):
        tool.release(small, tmp_path / "dist", tagged=False)
    assert not (tmp_path / "dist").exists()


def test_a_folder_of_others_is_left_alone(small: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").touch()
    with pytest.raises(InputError, match="holds other files"):
        tool.release(small, tmp_path / "mine", tagged=False)
    assert (tmp_path / "mine/file").exists()
