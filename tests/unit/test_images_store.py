"""What is kept between runs: made once, whole or not at all, by one process at a time."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from headfirst.control.images import build, recipes, store
from headfirst.decide.containers.image import ImageRecipe


def test_it_is_made_once(tmp_path: Path) -> None:
    calls: list[Path] = []

    def make(target: Path, scratch: Path) -> None:
        calls.append(target)
        target.write_text("made")

    first = store.built(tmp_path, "thing", "k1", ".tar", make)
    assert store.built(tmp_path, "thing", "k1", ".tar", make) == first
    assert (len(calls), first.read_text()) == (1, "made")


@pytest.mark.parametrize(("hours", "stays"), [(23, True), (25, False)])
def test_another_key_makes_it_again_and_removes_what_nobody_used_for_a_day(
    tmp_path: Path, hours: int, stays: bool
) -> None:
    (tmp_path / "thing-else.json").touch()
    old = store.built(tmp_path, "thing", "k1", ".tar", lambda target, _: target.write_text("1") and None)
    used = time.time() - hours * 3600
    os.utime(old, (used, used))
    new = store.built(tmp_path, "thing", "k2", ".tar", lambda target, _: target.write_text("2") and None)
    assert (old.exists(), new.read_text(), (tmp_path / "thing-else.json").exists()) == (stays, "2", True)


def test_what_is_used_counts_as_used_now(tmp_path: Path) -> None:
    done = store.built(tmp_path, "thing", "k1", ".tar", lambda target, _: target.write_text("1") and None)
    os.utime(done, (0, 0))
    store.built(tmp_path, "thing", "k1", ".tar", lambda target, _: None)
    assert time.time() - done.stat().st_mtime < 60


def test_a_failure_leaves_neither_file_nor_scratch_and_the_next_try_makes_it(tmp_path: Path) -> None:
    def fail(target: Path, scratch: Path) -> None:
        target.write_text("half")
        (scratch / "folder").mkdir()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        store.built(tmp_path, "thing", "k1", ".tar", fail)
    assert [path.name for path in tmp_path.iterdir()] == [".thing.lock"]
    done = store.built(tmp_path, "thing", "k1", ".tar", lambda target, _: target.write_text("whole") and None)
    assert done.read_text() == "whole"


def test_two_at_once_make_it_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def make(target: Path, scratch: Path) -> None:
        calls.append(1)
        time.sleep(0.2)
        target.touch()

    threads = [
        threading.Thread(target=store.built, args=(tmp_path, "thing", "k", ".tar", make)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def test_the_key_follows_the_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(store, "_HERE", tmp_path)
    (tmp_path / "shims").mkdir()
    (tmp_path / "shims" / "a.py").write_text("1")
    (tmp_path / "other.lock").write_text("1")
    before = store.recipe_key(tmp_path / "shims")
    (tmp_path / "other.lock").write_text("2")
    assert store.recipe_key(tmp_path / "shims") == before
    assert store.recipe_key(tmp_path / "shims", settings="PATH=/bin") != before
    (tmp_path / "shims" / "a.py").write_text("2")
    assert store.recipe_key(tmp_path / "shims") != before


@pytest.mark.parametrize(
    "change",
    [{"tag": "x:2"}, {"env": {"A": "2"}}, {"left_out": ("b",)}, {"uncompiled": "b"}, {"torch_cpu": True}],
    ids=str,
)
def test_the_key_follows_the_recipe(change: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "packages.lock").write_text("a==1\n")
    made = ImageRecipe("x", "x:1", tmp_path / "packages.lock", {"A": "1"}, ("a",), "a")
    assert build.recipe_key(made) == build.recipe_key(replace(made))
    assert build.recipe_key(made) != build.recipe_key(replace(made, **change))


def test_the_key_follows_the_packages_of_debian() -> None:
    assert build.recipe_key(recipes.HAPROXY) != build.recipe_key(recipes.PROMETHEUS)
    assert build.recipe_key(recipes.HAPROXY) != build.recipe_key(replace(recipes.HAPROXY, user="1:1"))
