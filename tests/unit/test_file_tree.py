"""The module that keeps a folder with exactly the files it is given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.headfirst.serving.plugins.modules.file_tree import Tree

MINE = os.getgid()


def apply(folder: Path, files: dict[str, str], mode: int = 0o644) -> tuple[list[str], list[str]]:
    check = Tree(str(folder), files, mode, MINE, check=True)
    check.apply()
    tree = Tree(str(folder), files, mode, MINE)
    tree.apply()
    assert (check.written, check.removed) == (tree.written, tree.removed)
    return [Path(path).name for path in tree.written], [Path(path).name for path in tree.removed]


def test_files_are_written_once_and_others_go(tmp_path: Path) -> None:
    folder = tmp_path / "targets"
    assert apply(folder, {"a.json": "1", "rules/b.yml": "2"}) == (["a.json", "b.yml"], [])
    assert apply(folder, {"a.json": "1", "rules/b.yml": "2"}) == ([], [])
    assert apply(folder, {"a.json": "3"}) == (["a.json"], ["b.yml"])
    assert (folder / "a.json").read_text() == "3"


@pytest.mark.parametrize(("mode", "of_folder"), [(0o644, 0o755), (0o640, 0o750)])
def test_modes(tmp_path: Path, mode: int, of_folder: int) -> None:
    folder = tmp_path / "keys"
    apply(folder, {"inner/key": "secret"}, mode)
    assert (folder / "inner" / "key").stat().st_mode & 0o777 == mode
    assert (folder / "inner").stat().st_mode & 0o777 == of_folder
    (folder / "inner" / "key").chmod(0o666)
    assert apply(folder, {"inner/key": "secret"}, mode) == (["key"], [])


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "a").symlink_to(outside)
    (folder / "b").symlink_to(outside)
    apply(folder, {"a": "new"})
    assert outside.read_text() == "mine"
    assert (folder / "a").read_text() == "new"
    assert not (folder / "b").is_symlink()


def test_a_folder_that_is_a_link_is_replaced_and_not_entered(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    (outside / "key").write_text("mine")
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "inner").symlink_to(outside)
    (folder / "other").symlink_to(outside)
    assert apply(folder, {"inner/key": "new"}) == (["key"], ["inner", "other"])
    assert (outside / "key").read_text() == "mine"
    assert outside.stat().st_mode & 0o777 == 0o700
    assert (folder / "inner" / "key").read_text() == "new"


def test_the_folder_itself_may_be_no_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "tree").symlink_to(tmp_path / "outside")
    with pytest.raises(NotADirectoryError):
        Tree(str(tmp_path / "tree"), {"a": "1"}, 0o644, MINE).apply()
    assert list((tmp_path / "outside").iterdir()) == []
