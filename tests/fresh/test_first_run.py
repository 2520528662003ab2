"""The README's first command on a machine that nobody prepared, as root and as a user with sudo."""

from __future__ import annotations

import configparser
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from headfirst.control import demo
from pristine import Pristine, local_folders, pristine

pytestmark = pytest.mark.lab
ROOT = Path(__file__).resolve().parents[2]
QUESTION = "Hello!"
CONSTRAINTS = """\
-c more-constraints.txt
numba<1
six @ file:///srv/wheels/six.whl
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pristine]:
    folder = tmp_path_factory.mktemp("fresh")
    (folder / "wheels").mkdir()
    (folder / "simple" / "nothing").mkdir(parents=True)
    (folder / "simple" / "nothing" / "index.html").write_text("<html></html>")
    folders = {"/srv/wheels": folder / "wheels", "/srv/simple": folder / "simple", **local_folders()}
    with pristine(ROOT, folders) as machine:
        add_pip_settings(machine)
        yield machine


def add_pip_settings(machine: Pristine) -> None:
    """A constraint that includes another, a folder of wheels and an index on the disk, beside what is set."""
    parser = configparser.RawConfigParser()
    parser.read_string(machine.run("cat /etc/pip.conf")[1])
    added = {
        "constraint": "/srv/constraints.txt",
        "find-links": "/srv/wheels",
        "extra-index-url": "file:///srv/simple",
    }
    for option, value in added.items():
        before = parser.get("global", option, fallback="")
        parser.set("global", option, f"{before} {value}".strip())
    text = io.StringIO()
    parser.write(text)
    machine.write(
        {
            "/etc/pip.conf": text.getvalue(),
            "/srv/constraints.txt": CONSTRAINTS,
            "/srv/more-constraints.txt": "llvmlite<1\n",
        }
    )


def bring_up_and_ask(machine: Pristine, user: str) -> str:
    """The README's way; what `deploy up` printed."""
    machine.run("git clone --quiet -c advice.detachedHead=false /srv/checkout.bundle headfirst", user=user)
    printed = machine.run("cd headfirst && ./deploy up inventories/lab.ini", user=user)[1]
    assert "The service is up." in printed
    asked = f"cd headfirst && ./deploy chat inventories/lab.ini '{QUESTION}'"
    answer = " ".join(machine.run(asked, user=user)[1].split())
    assert demo.answers()[QUESTION] in answer
    return printed


def test_as_root(machine: Pristine) -> None:
    assert machine.run("dpkg-query --show docker.io python3-venv sudo", check=False)[0] != 0
    printed = bring_up_and_ask(machine, "root")
    # One step for Python's environment, one for everything that nodes and images need.
    assert len(re.findall(r"^Installing with apt-get: ", printed, re.MULTILINE)) == 1
    assert len(re.findall(r"^== packages: Install ", printed, re.MULTILINE)) == 1
    for left_out in ("find-links: /srv/wheels", "extra-index-url: file:///srv/simple", "six @ file:///srv"):
        assert f"pip's {left_out}" in printed or left_out in printed
    assert "usually" in printed
    machine.run("cd headfirst && ./deploy lab down inventories/lab.ini")


def test_as_a_user_with_sudo(machine: Pristine) -> None:
    """Needs what test_as_root installed; the images that it built are moved, to save two minutes."""
    machine.run(
        "DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends sudo >/dev/null"
        " && useradd --create-home --shell /bin/bash tester"
        " && echo 'tester ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/tester"
        " && mkdir /home/tester/.cache && mv .cache/headfirst /home/tester/.cache/"
        " && chown -R tester: /home/tester/.cache"
    )
    printed = bring_up_and_ask(machine, "tester")
    assert "== packages:" not in printed
    machine.run("cd headfirst && ./deploy lab down inventories/lab.ini", user="tester")
