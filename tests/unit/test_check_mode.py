"""`--check` changes nothing: no host, and here no inventory, credential or record; for each verb."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from command import deploy
from headfirst.common.errors import NotReadyError
from headfirst.control.deployment.running import playbooks
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.verbs import up
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.control.run.result import RunResult
from headfirst.decide.model import catalogue
from host_records import HostRecords
from test_cli_verb import verbs

INVENTORY = """\
[head]
node1 ansible_host=192.0.2.11
[workers]
node2 ansible_host=192.0.2.12
[spares]
node3 ansible_host=192.0.2.13
[all:vars]
gpus=8
gpu=A100-80G
nic=eth0
hca=none
model=deepseek-ai/DeepSeek-R1-Distill-Qwen-32B
"""
WORDS = {
    "up": ["up", "cluster.ini"],
    "down": ["down", "cluster.ini", "--data"],
    "replace": ["replace", "cluster.ini", "node2", "--with", "node3"],
    "remove": ["remove", "cluster.ini", "node3"],
}


class Site:
    """Hosts in folders; playbooks are listed instead of run, with whether they would change something."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.changing = root, []
        monkeypatch.setenv("XDG_STATE_HOME", str(root / "state"))
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        (root / "state").mkdir()
        (root / "cluster.ini").write_text(INVENTORY)
        HostRecords(root / "hosts", monkeypatch)
        monkeypatch.setattr(playbooks, "run_playbook", self.run_playbook)
        monkeypatch.setattr(playbooks, "refuse_missing_tools", lambda _: None)

    def run_playbook(self, playbook: Path, *_: Any, check: bool, log_file: Path, **__: Any) -> RunResult:
        if not check and playbook.name != "probe.yml":
            self.changing.append(playbook.name)
        return RunResult(True, False, {}, [], [], [], [], 1.0, log_file)

    def files(self) -> dict[str, bytes]:
        """All but logs and the file that a reader locks while it reads."""
        files = (path for path in self.root.rglob("*") if path.is_file())
        files = (path for path in files if not {"logs", "mutex"} & {*path.parts})
        return {str(path.relative_to(self.root)): path.read_bytes() for path in files}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_every_verb_with_check_is_here() -> None:
    with_check = [command.__name__ for command in verbs() if "check" in inspect.signature(command).parameters]
    assert sorted(with_check) == sorted(WORDS)


@pytest.mark.parametrize("state", ["new", "served"])
@pytest.mark.parametrize("verb", WORDS)
def test_check_changes_nothing_anywhere(verb: str, state: str, site: Site) -> None:
    if state == "served":
        done = deploy("up", "cluster.ini", cwd=site.root)
        assert (done.returncode, "serve.yml" in site.changing or "up.yml" in site.changing) == (0, True), done
    before, site.changing = site.files(), []
    done = deploy(*WORDS[verb], "--check", cwd=site.root)
    assert done.returncode == 0, done
    assert (site.files(), site.changing) == (before, [])
    assert done.stdout  # what would change


def test_check_installs_no_packages_on_this_machine(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up.packages, "missing", lambda _: ["mmdebstrap"])
    monkeypatch.setattr(up.packages, "install", lambda *_: pytest.fail("packages were installed"))
    path = site.root / "cluster.ini"
    path.write_text(INVENTORY + "webui_image_source=build\n")
    with pytest.raises(NotReadyError, match=r"lacks mmdebstrap, and --check installs nothing"):
        up.up(RunOptions([path], check=True), QuietReporter())


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("credentials cluster.ini --wait 5", "--wait is for --rotate"),
        ("models cluster.ini --refresh --task chat", "--task is for a list"),
        ("models cluster.ini --refresh --probe", "--probe is for a list"),
        ("test --list --service chat", "--list excludes --service"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(words: str, what: str, site: Site) -> None:
    done = deploy(*words.split(), cwd=site.root)
    assert (done.returncode, what in done.stderr) == (2, True), done


def test_json_of_one_model_is_json(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "ids", lambda: ["Qwen/Qwen3-8B", "Qwen/Qwen3-32B"])
    done = deploy("models", "cluster.ini", "--model", "Qwen/Qwen3-32B", "--json", cwd=site.root)
    assert [offer["model"] for offer in json.loads(done.stdout)["offers"]] == ["Qwen/Qwen3-32B"]
