"""tools/line_budget.py: a package that exceeds its number of lines fails lint, with the next step."""

from __future__ import annotations

import subprocess
from pathlib import Path

import line_budget
import pytest


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.headfirst.lines]\n"py/house" = 4\n"py/house/room" = 2\ntests = 1\n'
    )
    for name, lines in {"py/house/a.py": 4, "py/house/room/b.py": 2, "tests/unit/test_c.py": 1}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n" * lines)
    return tmp_path


def test_what_is_within_its_numbers_passes(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert line_budget.main(checkout) == 0
    assert capsys.readouterr().out == "6 lines of the product, 1 of tests\n"


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("py/house/room/new.py", "py/house/room has 3 lines, more than 2: delete lines, or raise the number"),
        ("py/house/new.py", "py/house has 5 lines, more than 4: "),
        ("tests/new.py", "tests has 2 lines, more than 1: "),
        ("tools/new.py", "1 lines are in no folder of the table"),
    ],
)
def test_a_line_more_fails_and_names_the_package(
    checkout: Path, capsys: pytest.CaptureFixture[str], file: str, said: str
) -> None:
    (checkout / file).parent.mkdir(exist_ok=True)
    (checkout / file).write_text("x = 1\n")
    assert line_budget.main(checkout) == 1
    printed = capsys.readouterr().out
    assert said in printed
    assert "pyproject.toml" in printed


def test_a_file_that_is_deleted_or_ignored_does_not_count(checkout: Path) -> None:
    subprocess.run(["git", "add", "--all"], cwd=checkout, check=True)
    (checkout / "py/house/a.py").unlink()
    (checkout / ".gitignore").write_text("made.py\n")
    (checkout / "py/house/made.py").write_text("x = 1\n" * 9)
    assert line_budget.main(checkout) == 0
