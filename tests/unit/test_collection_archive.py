"""The collection's archive, built and installed by ansible-galaxy, beside nothing but ansible-core."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.headfirst.serving.plugins.plugin_utils.node_wheel import build_node_wheel
from documented import ROOT
from packaging.requirements import Requirement
from releases import committed

ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
REPOSITORY = yaml.safe_load((ROOT / "galaxy.yml").read_text())["repository"]


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


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    folder = tmp_path_factory.mktemp("bare")
    bare = Bare(folder)
    source = committed(tmp_path_factory.mktemp("source"))
    for arguments in (
        ("build", "--output-path", str(folder), str(source)),
        ("install", "--offline", f"{folder}/headfirst-serving-0.1.0.tar.gz"),
    ):
        done = bare.run("galaxy", "collection", *arguments, cwd=folder)
        assert done.returncode == 0, done.stdout
    return bare


def test_its_readme_lists_every_role(bare: Bare) -> None:
    manifest = json.loads((bare.collection / "MANIFEST.json").read_text())
    text = (bare.collection / manifest["collection_info"]["readme"]).read_text("utf-8")
    assert re.findall(r"\(roles/(\w+)/README\.md\)", text) == ROLES


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_readme_of_the_product_lists_every_role(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert sorted(re.findall(r"\(roles/(\w+)/README\.md\)", text)) == ROLES
    assert f"ansible-galaxy collection install git+{REPOSITORY}.git,main\n" in text


def test_links_of_its_pages_lead_to_its_files(bare: Bare) -> None:
    links = [
        (page, link)
        for page in (bare.collection / "COLLECTION.md", *bare.collection.glob("roles/*/README.md"))
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8"))
    ]
    assert len(links) > len(ROLES)
    for page, link in links:
        if link.startswith(REPOSITORY):
            there = ROOT / link.removeprefix(REPOSITORY).partition("/blob/main/")[2].partition("#")[0]
        else:
            there = page.parent / link.partition("#")[0]
        assert (link.startswith("https://") and not link.startswith(REPOSITORY)) or there.exists(), (
            page,
            link,
        )


def test_it_makes_the_same_wheel_of_the_node_tools(bare: Bare, tmp_path: Path) -> None:
    call = "msg={{ lookup('headfirst.serving.node_wheel') }}"
    done = bare.run("adhoc", "localhost", "-m", "ansible.builtin.debug", "-a", call)
    assert done.returncode == 0, done.stdout
    (made,) = (bare.home / ".cache/headfirst/wheels").glob("*.whl")
    assert str(made) in done.stdout
    there = build_node_wheel(tmp_path)
    assert (made.name, made.read_bytes()) == (there.name, there.read_bytes())
    assert sorted(path.name for path in made.parent.iterdir()) == sorted(p.name for p in tmp_path.iterdir())


def test_the_play_of_each_roles_page_is_right(bare: Bare, tmp_path: Path) -> None:
    plays = []
    for role in ROLES:
        text = (bare.collection / "roles" / role / "README.md").read_text("utf-8")
        (block,) = re.findall(r"^## Use\n\n```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        (play,) = yaml.safe_load(block)
        assert f"headfirst.serving.{role}" in [one["role"] for one in play["roles"]]
        names = {name for name in play.get("vars", {}) if name.startswith(f"{role}_")}
        specs = yaml.safe_load((bare.collection / "roles" / role / "meta/argument_specs.yml").read_text())
        options = specs["argument_specs"]["main"]["options"]
        required = {name for name, option in options.items() if option.get("required")}
        assert required <= names <= options.keys()
        (tmp_path / f"{role}.yml").write_text(block)
        plays.append(f"{role}.yml")
    done = bare.run("playbook", "--syntax-check", "--inventory", "node1,node2,", *plays, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert re.findall(r"playbook: (\w+)\.yml", done.stdout) == ROLES
