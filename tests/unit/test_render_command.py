"""`deploy render`: writing a folder, what it refuses, and what it prints."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from command import Ended, deploy
from headfirst.common.errors import InputError
from headfirst.control.cli.render import _command
from headfirst.control.deployment.verbs.render import write
from headfirst.decide.render.files import File
from rendering import ROOT

OURS = "# Made by Headfirst 0.0.9; x\nold\n"
NEW = {
    "a.sh": File("#!/bin/bash\n# Made by Headfirst 0.1.0; x\n", 0o755),
    "b.yaml": File("# Made by Headfirst 0.1.0; x\n"),
}


def test_files_are_written_with_their_modes(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "out"
    assert write(NEW, folder) == []
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {
        "a.sh": 0o755,
        "b.yaml": 0o644,
    }
    assert (folder / "a.sh").read_text() == NEW["a.sh"].text


def test_our_files_are_replaced_and_older_ones_named(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(OURS)
    (tmp_path / "c.yaml").write_text(OURS)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "secrets").mkdir()
    assert write(NEW, tmp_path) == ["c.yaml"]
    assert (tmp_path / "b.yaml").read_text() == NEW["b.yaml"].text
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("kind", ["other", "link", "folder", "binary"])
def test_what_is_not_ours_is_kept_and_nothing_is_written(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "b.yaml"
    if kind == "other":
        target.write_text("services: {}\n# Made by Headfirst\n")
    elif kind == "binary":
        target.write_bytes(b"\xff\x00")
    elif kind == "folder":
        target.mkdir()
    else:
        (tmp_path / "elsewhere").write_text(OURS)
        target.symlink_to(tmp_path / "elsewhere")
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(InputError, match="was not made by"):
        write(NEW, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    if kind == "link":
        assert (tmp_path / "elsewhere").read_text() == OURS


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        write(NEW, tmp_path / "file" / "out")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["render", "a b.ini", "--to", "compose"], "deploy render 'a b.ini' --to compose"),
        (["-e", "engine_port=31000"], "deploy -e engine_port=31000"),
        (["-e", "ansible_password=hush"], "deploy -e 'ansible_password=…'"),
        (["-eansible_password=hush"], "deploy '-eansible_password=…'"),
        (["--extra-vars=ansible_password=hush"], "deploy '--extra-vars=ansible_password=…'"),
        (["--extra-vars", "engine_port=1 ansible_password=hush"], "deploy --extra-vars 'engine_port=…'"),
        (["-e", '{"ansible_password": "hush"}'], "deploy -e '…'"),
        (["-e", "@vars.yml"], "deploy -e @vars.yml"),
        (["-e", "docker_engine_source=tuna"], "deploy -e docker_engine_source=tuna"),
        (["-e", "engine_env=TOKEN=hush"], "deploy -e 'engine_env=…'"),
        (["-e", "node_tools_index_url=http://me:hush@mirror"], "deploy -e 'node_tools_index_url=…'"),
    ],
)
def test_the_command_in_the_header_has_no_secret(words: list[str], shown: str) -> None:
    assert _command(words) == shown


def render(*words: str, cwd: Path) -> Ended:
    return deploy("render", str(ROOT / "inventories" / "lab.ini"), *words, cwd=cwd)


def test_without_a_folder_the_files_are_printed(tmp_path: Path) -> None:
    done = render("--to", "slurm", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "==> headfirst-engine.sbatch <==\n#!/bin/bash\n# Made by Headfirst" in done.stdout
    assert "not among the files: the chat page" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_json_lists_the_files(tmp_path: Path) -> None:
    done = render("--to", "compose", "-o", "out", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert report["to"] == "compose"
    assert {tmp_path / file["path"] for file in report["files"]} == set((tmp_path / "out").iterdir())
    for file in report["files"]:
        assert (tmp_path / file["path"]).read_text() == file["text"]
        assert file["mode"] == ("0755" if file["path"].endswith(".sh") else "0644")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "compose", "--with", "nerdctl"], "--with belongs to --to docker-run"),
        (["--to", "kubernetes", "--container", "none"], "--container belongs to --to slurm"),
        (["--to", "slurm", "--storage", "pvc"], "--storage belongs to --to kubernetes"),
        (["--to", "nomad"], "nomad"),
        ([], "--to"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, words: list[str], message: str) -> None:
    done = render(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
