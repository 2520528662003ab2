"""The tarball of the collection passes ansible-test sanity and the importer of Ansible Galaxy.

Both bring their own environments: ansible-test makes one for each test, and the importer pins old versions of
libraries that the tests use.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from ansible_test._internal import python_requirements
from documented import ROOT
from headfirst.control import pip_config
from headfirst.control.machine.pip_settings import uv_environment
from releases import collection, committed, git
from uv import find_uv_bin

NOTHING_TO_READ = {"changelog", "empty-init", "pslint", "shellcheck"}
"""Tests for files that the collection does not have (docs/release.md)."""


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    return collection.build(committed(tmp_path_factory.mktemp("source")), folder, 1_700_000_000)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A HOME with what ansible-test takes from there: pip's settings, and pip's installer.

    ansible-test drops PIP_* variables, and downloads the installer from a server that a machine with a mirror
    of PyPI alone does not reach. A wheel of pip installs itself just as well.
    """
    folder = tmp_path_factory.mktemp("home")
    environment = pip_config.exact_environment(os.environ)
    options = {
        name[4:].lower().replace("_", "-"): value
        for name, value in environment.items()
        if name.startswith("PIP_") and name != "PIP_CONFIG_FILE"
    }
    settings = folder / ".config/pip/pip.conf"
    settings.parent.mkdir(parents=True)
    lines = [f"{name} = {' '.join(value.split())}" for name, value in options.items()]
    settings.write_text("\n".join(["[global]", *lines, ""]))
    (version,) = re.findall(r"pip='([\d.]+)'", Path(python_requirements.__file__).read_text())
    argv = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        f"--dest={folder}",
        f"pip=={version}",
    ]
    subprocess.run(argv, env=environment, check=True)
    (wheel,) = folder.glob("pip-*.whl")
    installer = folder / f".ansible/test/cache/get_pip_{version.replace('.', '_')}.py"
    installer.parent.mkdir(parents=True)
    installer.write_text(
        f"""import sys
sys.path.insert(0, {str(wheel)!r})
from pip._internal.cli.main import main
wanted = [word for word in sys.argv[1:] if word not in ("--no-setuptools", "--no-wheel")]
sys.exit(main(["install", "--no-index", "--find-links", {str(folder)!r}, *wanted]))
"""
    )
    return folder


@pytest.fixture(scope="module")
def unpacked(tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection as ansible-test asks for it: in ansible_collections, and in a repository."""
    folder = tmp_path_factory.mktemp("sanity") / "ansible_collections/headfirst/serving"
    folder.mkdir(parents=True)
    with tarfile.open(tarball) as archive:
        archive.extractall(folder, filter="data")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "All")
    return folder


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Links to the interpreters of this machine that ansible-test takes, on PATH and of pyenv."""
    folder = tmp_path_factory.mktemp("pythons")
    folders = [
        *(Path.home() / ".pyenv/versions").glob("*/bin"),
        *map(Path, os.environ["PATH"].split(os.pathsep)),
    ]
    for name in [f"python3.{minor}" for minor in range(8, 14)]:
        # pyenv has commands on PATH for versions that it does not run.
        found = (one / name for one in folders if (one / name).is_file() and "shims" not in one.parts)
        if path := next(found, None):
            (folder / name).symlink_to(path)
    return folder


def sanity(unpacked: Path, home: Path, pythons: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = Path(sys.executable).parent
    rest = [one for one in os.environ["PATH"].split(os.pathsep) if "shims" not in Path(one).parts]
    return subprocess.run(
        [str(environment / "ansible-test"), "sanity", "--local", "--color=no", "-v", *arguments],
        cwd=unpacked,
        env={
            **os.environ,
            "HOME": str(home),
            "PATH": os.pathsep.join([str(environment), str(pythons), *rest]),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_sanity(unpacked: Path, home: Path, pythons: Path) -> None:
    done = sanity(unpacked, home, pythons)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-6000:]
    listed = sanity(unpacked, home, pythons, "--list-tests").stdout
    every = set(re.findall(r"^[a-z][\w-]+$", listed, re.MULTILINE))
    idle = set(re.findall(r'test "([\w-]+)".*\nNo tests applicable', done.stdout))
    assert idle == NOTHING_TO_READ
    assert set(re.findall(r'^Running sanity test "([\w-]+)"', done.stdout, re.MULTILINE)) == every
    assert set(re.findall(r'"import" on Python (3\.\d+)', done.stdout)) == {
        path.name.removeprefix("python") for path in pythons.iterdir()
    }


def test_sanity_finds_a_mistake(unpacked: Path, home: Path, pythons: Path) -> None:
    module = unpacked / "plugins/modules/reach.py"
    text = module.read_text("utf-8")
    module.write_text(text.replace("required: true", "required: false", 1), "utf-8")
    try:
        done = sanity(unpacked, home, pythons, "--test", "validate-modules", "plugins/modules/reach.py")
    finally:
        module.write_text(text, "utf-8")
    assert done.returncode == 1
    assert "doc-required-mismatch" in done.stdout


def test_the_importer_takes_it(tarball: Path, tmp_path: Path) -> None:
    environment, uv = uv_environment(), find_uv_bin()
    venv = tmp_path / "venv"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, venv], env=environment, check=True)
    install = [uv, "pip", "install", "--quiet", "--require-hashes", "--python", venv / "bin/python"]
    subprocess.run([*install, "-r", ROOT / "tests/long/importer.lock"], env=environment, check=True)
    done = subprocess.run(
        [venv / "bin/python", "-m", "galaxy_importer.main", tarball],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{venv / 'bin'}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "GALAXY_IMPORTER_CHECK_REQUIRED_TAGS": "true",
        },
        capture_output=True,
        text=True,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    ignored = len((ROOT / "tests/sanity/ignore-2.19.txt").read_text("utf-8").splitlines())
    what = f"Ignore files skip ansible-test sanity tests, found ignore-2.19.txt with {ignored} statement(s)"
    assert re.findall(r"^(?:WARNING|ERROR): (.*)", done.stdout, re.MULTILINE) == [what]
    assert "...ansible-lint run complete" in done.stdout
    result = json.loads((tmp_path / "importer_result.json").read_text("utf-8"))
    documented = {item["content_name"] for item in result["docs_blob"]["contents"] if item["doc_strings"]}
    modules = {path.stem for path in (ROOT / "plugins/modules").glob("*.py")}
    assert modules <= documented
