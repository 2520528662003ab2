"""A Python that has nothing but ansible-core, and the collection as ansible-galaxy builds and installs it."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from documented import ROOT
from packaging.requirements import Requirement
from releases import VERSION, committed


def needs(name: str) -> Iterator[str]:
    """A package and all that it needs, by the names of their files at the top of site-packages."""
    distribution = importlib.metadata.distribution(name)
    yield from {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "bin")}
    for line in distribution.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield from needs(requirement.name)


class Bare:
    """A Python that has ansible-core, and a home where the collection is installed."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.packages = folder / "packages"
        self.packages.mkdir()
        site = Path(importlib.metadata.distribution("ansible-core").locate_file(""))
        for name in set(needs("ansible-core")):
            if (site / name).exists():
                (self.packages / name).symlink_to(site / name)

    def run(self, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
        """A command of ansible, without this environment's packages."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ANSIBLE"))
        }
        return subprocess.run(
            [sys.executable, "-S", "-m", "ansible", *arguments],
            cwd=cwd,
            env={**kept, "PYTHONPATH": str(self.packages), "HOME": str(self.home), "ANSIBLE_NOCOLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    @property
    def collection(self) -> Path:
        return self.home / ".ansible/collections/ansible_collections/headfirst/serving"

    def play(self, role: str) -> str:
        """The play to paste of a role's page."""
        text = (self.collection / "roles" / role / "README.md").read_text("utf-8")
        (block,) = re.findall(r"^## Use\n\n```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        return str(block)


def installed(folder: Path) -> Bare:
    """The working tree's collection, installed in `folder` from its archive."""
    bare = Bare(folder)
    (folder / "source").mkdir()
    source = committed(folder / "source")
    for arguments in (
        ("build", "--output-path", str(folder), str(source)),
        ("install", "--offline", f"{folder}/headfirst-serving-{VERSION}.tar.gz"),
    ):
        done = bare.run("galaxy", "collection", *arguments, cwd=folder)
        assert done.returncode == 0, done.stdout
    return bare
