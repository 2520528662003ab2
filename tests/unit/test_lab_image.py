"""The node image is made again when, and only when, its recipe changes."""

import shutil
from pathlib import Path

import pytest
from headfirst.control.lab import image


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = shutil.copytree(image._RECIPE, tmp_path / "node_image")
    monkeypatch.setattr(image, "_RECIPE", copy)
    monkeypatch.setattr(
        image.platform, "freedesktop_os_release", lambda: {"ID": "debian", "VERSION_CODENAME": "x"}
    )
    return copy


def test_the_hash_is_the_same_wherever_the_recipe_lies(recipe: Path, tmp_path: Path) -> None:
    before = image.recipe_hash()
    image._RECIPE = recipe.rename(tmp_path / "elsewhere")
    assert image.recipe_hash() == before


def test_a_changed_file_changes_the_hash(recipe: Path) -> None:
    before = image.recipe_hash()
    (recipe / "files/etc/sudoers.d/headfirst").write_text("")
    assert image.recipe_hash() != before


def test_another_release_changes_the_hash(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = image.recipe_hash()
    monkeypatch.setattr(
        image.platform, "freedesktop_os_release", lambda: {"ID": "ubuntu", "VERSION_CODENAME": "y"}
    )
    assert image.recipe_hash() != before


def test_another_distribution_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fedora = {"ID": "fedora", "PRETTY_NAME": "Fedora Linux 42"}
    monkeypatch.setattr(image.platform, "freedesktop_os_release", lambda: fedora)
    with pytest.raises(image.NotReadyError, match="Fedora Linux 42"):
        image.recipe_hash()
