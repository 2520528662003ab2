"""A draft model on a hub that changes between two runs: described, fetched, and kept at what was recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils.weights_choice import choose
from draft_folders import EAGLE3, EAGLE3_TENSORS, draft_folder
from fake_hub import COMMIT, MODEL, FakeHub, running
from fetching import environment, run_fetch
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.artifacts import Artifacts
from headfirst.control.deployment.running.role_vars import Up
from headfirst.control.deployment.running.role_vars.weights import companion_vars

NEXT = "decade" * 6 + "deca"
STATUS = (sys.executable, "-c", "from headfirst.node.weights.cli import main; main()", "status")
SMALL = {"fc.weight": (8, 24), "lm_head.weight": (16, 8)}


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    with running(files_of(draft_folder(tmp_path / "first", EAGLE3, SMALL))) as hub:
        yield hub


def move(hub: FakeHub, tmp_path: Path) -> None:
    """The branch names another commit, whose weights have another size."""
    hub.files = files_of(draft_folder(tmp_path / "second", EAGLE3, SMALL | {"norm.weight": (8,)}))
    hub.commit = NEXT


def status(hub: FakeHub, folder: Path, source: str, address: str, *words: str) -> dict[str, Any]:
    """What the role reads of a host."""
    about = ("--served-dir", str(folder), "--address", address, "--model", MODEL, "--from", source)
    done = subprocess.run(
        [*STATUS, *about, *words],
        env=environment(hub, folder.parent),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("source", ["huggingface", "modelscope"])
def test_a_second_run_keeps_and_passes_on_what_was_recorded(
    hub: FakeHub, source: str, tmp_path: Path
) -> None:
    head, worker = tmp_path / "head" / "draft", tmp_path / "worker" / "draft"
    head.parent.mkdir()
    worker.parent.mkdir()
    assert run_fetch(hub, head, source=source)[0].returncode == 0
    recorded = files_of(head)
    move(hub, tmp_path)
    hub.requests.clear()
    states = {
        "head": status(hub, head, source, "10.0.0.1", "--is-head"),
        "worker": status(hub, worker, source, "10.0.0.2"),
    }
    assert not hub.requests
    choice = choose(states, ["10.0.0.1", "10.0.0.2"], {"head": "head", "worker": "worker"}, {}, {})
    # The head holds it, so it gives the worker what it has, and no host fetches.
    assert choice["holders"] == ["10.0.0.1"] and choice["head_gives"]
    assert files_of(head) == recorded
    if source == "huggingface":
        assert states["head"]["pinned"] == COMMIT


def test_another_commit_comes_with_its_revision(hub: FakeHub, tmp_path: Path) -> None:
    folder = tmp_path / "head" / "draft"
    folder.parent.mkdir()
    run_fetch(hub, folder, source="huggingface")
    move(hub, tmp_path)
    revision = ("--revision", NEXT)
    assert not status(hub, folder, "huggingface", "10.0.0.1", *revision)["answers"]
    done, result = run_fetch(hub, folder, MODEL, *revision, source="huggingface")
    assert done.returncode == 0 and result["changed"], done.stderr
    assert status(hub, folder, "huggingface", "10.0.0.1", *revision)["pinned"] == NEXT


def test_the_plan_reads_the_draft_on_its_hub(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", hub.url)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    model = draft_folder(tmp_path / "srv" / "model", TARGET, EAGLE3_TENSORS)
    inventory = tmp_path / "c.ini"
    inventory.write_text(
        "[head]\nn1 ansible_host=192.0.2.1 gpus=1 gpu=H100-80G\n\n[all:vars]\n"
        f"model_source=path\nmodel={model}\ndraft_model={MODEL}\nengine=vllm\n"
    )
    prepared = prepare([inventory], [], probe=False)
    (service,) = prepared.plan.services
    draft = service.draft_model
    assert draft is not None and (draft.described_by, draft.kind) == ("hub", "eagle3")
    up = Up(prepared.cluster, prepared.plan, Secrets(), Artifacts(tmp_path / "wheel"))
    variables = companion_vars(up, service, draft)["n1"]
    assert (variables["weights_source"], variables["weights_model"]) == ("modelscope", MODEL)
    target = tmp_path / "served"
    done, _ = run_fetch(hub, target, source=variables["weights_source"])
    assert done.returncode == 0, done.stderr
    assert status(hub, target, "modelscope", "10.0.0.1")["answers"]


TARGET = {key: value for key, value in EAGLE3.items() if key != "draft_vocab_size"} | {
    "architectures": ["Qwen3ForCausalLM"],
    "num_hidden_layers": 36,
}
