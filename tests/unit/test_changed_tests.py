"""Which unit tests `./test quick` runs: those near to what changed, as long as they fit into its time."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from changed_tests import RECORD, ROOT, changed, chosen, distances, plan

FILES = {
    "py/headfirst/decide/fit.py": "",
    "py/headfirst/decide/plan.py": "from headfirst.decide import fit\n",
    "py/headfirst/decide/table.yml": "",
    "plugins/module_utils/probe.py": "",
    "roles/engine/tasks/main.yml": "",
    "docs/router.md": "",
    "tests/helper.py": "import headfirst.decide.plan\n",
    "tests/unit/data/log.txt": "",
    "tests/unit/test_fit.py": "from headfirst.decide.fit import fits\n",
    "tests/unit/test_helped.py": "from helper import anything\n",
    "tests/unit/test_probe.py": (
        "from ansible_collections.headfirst.serving.plugins.module_utils import probe\n"
        'LOG = "data/log.txt"\nROLE = ROOT / "roles" / "engine"\n'
    ),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("change", "near"),
    [
        ("py/headfirst/decide/fit.py", {"test_fit": 1, "test_helped": 3}),
        ("py/headfirst/decide/table.yml", {"test_fit": 2, "test_helped": 3}),
        ("plugins/module_utils/probe.py", {"test_probe": 1}),
        ("roles/engine/tasks/main.yml", {"test_probe": 3}),
        ("tests/unit/data/log.txt", {"test_probe": 1}),
        ("tests/unit/test_helped.py", {"test_helped": 0}),
        ("docs/router.md", {}),
        ("py/headfirst/decide/gone.py", {"test_fit": 2, "test_helped": 3}),
    ],
)
def test_how_far_a_test_is_from_a_change(tree: Path, change: str, near: dict[str, int]) -> None:
    assert distances([change], tree) == {f"tests/unit/{name}.py": away for name, away in near.items()}


def test_the_nearest_run_until_the_time_is_full() -> None:
    away = {"far": 3, "slow": 1, "near": 1, "changed": 0}
    assert chosen(away, {"far": 9, "slow": 50, "near": 5, "changed": 100}, 20) == ["changed"]
    assert chosen(away, {"far": 9, "slow": 50, "near": 5, "changed": 2}, 20) == ["changed", "near", "far"]


def test_what_it_takes_is_printed_before_it_starts() -> None:
    away = {
        f"tests/unit/test_{name}.py": distance for name, distance in (("near", 1), ("far", 2), ("slow", 1))
    }
    taken = {"tests/unit/test_near.py": 10.0, "tests/unit/test_far.py": 8.0, "tests/unit/test_slow.py": 90.0}
    run, text = plan(away, taken, 2, 0.0)
    assert [Path(path).stem for path in run] == ["test_near", "test_far"]
    assert text.splitlines() == [
        "Takes about 40 s: 2 test files 24 s, lint 16 s.",
        "Left out, 1 test files, nearest first: test_slow",
    ]
    _, text = plan(away, taken, 2, 4.0)
    assert "This machine is busy (load 4.0): about 120 s." in text
    run, text = plan(away | {"tests/unit/test_slow.py": 0}, taken, 2, 0.0)
    assert [Path(path).stem for path in run] == ["test_slow"]
    assert "Takes about 112 s" in text
    assert "Longer than a minute, since you changed: tests/unit/test_slow.py 90 s." in text
    assert "Left out, 2 test files, nearest first: test_near test_far" in text


def test_all_that_runs_fits_into_a_minute() -> None:
    """With the recorded times, a module that every test is near to: slow files are left out."""
    taken = {
        path: collect_s + run_s / 2 for path, (collect_s, run_s) in json.loads(RECORD.read_text()).items()
    }
    away = {str(path.relative_to(ROOT)): 1 for path in (ROOT / "tests" / "unit").glob("test_*.py")}
    assert taken.keys() <= away.keys(), "a file that is gone has a time"
    run, text = plan(away, taken, 2, 0.0)
    assert "Takes about 60 s" in text
    assert 20 < len(run) < len(away) - 20


def test_what_left_the_upstream_branch_has_changed(tree: Path) -> None:
    def git(*words: str) -> None:
        author = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
        subprocess.run(["git", *author, *words], cwd=tree, check=True, capture_output=True)

    git("init", "--initial-branch=main")
    git("add", "docs", "roles")
    git("commit", "--message=First")
    git("switch", "--create=work", "--track", "main")
    git("add", "py/headfirst/decide/fit.py")
    git("commit", "--message=Second")
    (tree / "docs/router.md").write_text("Changed")
    (tree / "docs/later.md").touch()
    found = changed(tree)
    assert {"docs/later.md", "docs/router.md", "py/headfirst/decide/fit.py"} <= {*found}
    assert "roles/engine/tasks/main.yml" not in found
