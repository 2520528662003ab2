"""The module that keeps a folder with exactly the files it is given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.headfirst.serving.plugins.modules.file_tree import Tree

ME = os.getuid()


def apply(folder: Path, files: dict[str, str], mode: int = 0o644) -> tuple[list[str], list[str]]:
    tree = Tree(folder, files, mode, ME)
    written, removed = tree.differing(), tree.surplus()
    tree.make_folders()
    for path in written:
        tree.write(path)
    for path in removed:
        path.unlink()
    return [path.name for path in written], [path.name for path in removed]


def test_files_are_written_once_and_others_go(tmp_path: Path) -> None:
    folder = tmp_path / "targets"
    assert apply(folder, {"a.json": "1", "rules/b.yml": "2"}) == (["a.json", "b.yml"], [])
    assert apply(folder, {"a.json": "1", "rules/b.yml": "2"}) == ([], [])
    assert apply(folder, {"a.json": "3"}) == (["a.json"], ["b.yml"])
    assert (folder / "a.json").read_text() == "3"


@pytest.mark.parametrize(("mode", "of_folder"), [(0o644, 0o755), (0o600, 0o700)])
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
