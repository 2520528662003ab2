"""The collection's archive, built and installed by ansible-galaxy, beside nothing but ansible-core."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.headfirst.serving.plugins.plugin_utils.node_wheel import build_node_wheel
from bare_ansible import Bare, installed
from documented import ROOT

ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
REPOSITORY = yaml.safe_load((ROOT / "galaxy.yml").read_text())["repository"]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    return installed(tmp_path_factory.mktemp("bare"))


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
        (play,) = yaml.safe_load(bare.play(role))
        assert f"headfirst.serving.{role}" in [one["role"] for one in play["roles"]]
        names = {name for name in play.get("vars", {}) if name.startswith(f"{role}_")}
        specs = yaml.safe_load((bare.collection / "roles" / role / "meta/argument_specs.yml").read_text())
        options = specs["argument_specs"]["main"]["options"]
        required = {name for name, option in options.items() if option.get("required")}
        assert required <= names <= options.keys()
        (tmp_path / f"{role}.yml").write_text(bare.play(role))
        plays.append(f"{role}.yml")
    done = bare.run("playbook", "--syntax-check", "--inventory", "node1,node2,", *plays, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert re.findall(r"playbook: (\w+)\.yml", done.stdout) == ROLES
