"""A cluster of an earlier release is taken over by `up`: nothing restarts that was not announced."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from headfirst.control.deployment.running.stages import STAGES
from readme_lab import INVENTORY, ROOT, Service, bring_up, on_node, own_lab, started, succeeds

pytestmark = pytest.mark.lab
# What this commit of our own history leaves on hosts and controller is the state to be taken over.
PREVIOUS = "de421972cd68af0bc6e58cc596c8dd924bbc8f30"
VERSION = "0.0.9"
NODES = ("node1", "node2")
CHANGING = {stage.name for stage in STAGES} - {"check"}


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    text = INVENTORY.read_text().replace("10.213.0.", "10.225.0.")
    with own_lab(tmp_path_factory.mktemp("inventory") / "lab-upgrade.ini", text) as path:
        yield path


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the earlier release."""
    folder = tmp_path_factory.mktemp("previous")
    done = subprocess.run(["git", "archive", PREVIOUS], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, "The test needs the history: git fetch --unshallow"
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        tar.extractall(folder, filter="data")
    version = folder / "py" / "headfirst" / "__init__.py"
    version.write_text(version.read_text().replace('"0.1.0"', f'"{VERSION}"'))
    # The lab's nodes are the test's: with another recipe of them, `up` would make them again.
    recipe = folder / "py" / "headfirst" / "control" / "lab" / "node_image"
    shutil.rmtree(recipe)
    shutil.copytree(ROOT / "py" / "headfirst" / "control" / "lab" / "node_image", recipe)
    return folder


@contextmanager
def asked_all_along(url: str, headers: dict[str, str]) -> Iterator[list[str]]:
    """What went wrong with requests, one after the other, in the meantime."""
    failures: list[str] = []
    end = threading.Event()

    def ask() -> None:
        while not end.wait(0.5):
            try:
                answer = httpx.get(url, headers=headers, timeout=10, trust_env=False)
                if answer.status_code != 200:
                    failures.append(str(answer.status_code))
            except httpx.HTTPError as error:
                failures.append(repr(error))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield failures
    finally:
        end.set()
        asking.join()


def page_started(inventory: Path) -> str:
    return on_node("node1", "docker inspect --format '{{.State.StartedAt}}' headfirst-webui", inventory)


def tools_version(inventory: Path) -> str:
    return on_node("node1", "/opt/headfirst/venv/bin/headfirst-supervisor --version", inventory)


def announced(events: str) -> list[str]:
    """What restarts by the warnings of a run, which come before its first stage that changes a host."""
    found: list[str] = []
    for event in map(json.loads, events.splitlines()):
        if event["event"] == "stage_started" and event["stage"] in CHANGING:
            break
        if event["event"] == "findings_reported":
            found += [finding["what"] for finding in event["findings"] if finding["id"] == "restart"]
    return found


def test_up_takes_over_and_restarts_what_it_announced(previous: Path, inventory: Path) -> None:
    command = [str(previous / "deploy"), "up", str(inventory), "--json"]
    done = subprocess.run(command, cwd=previous, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert VERSION in tools_version(inventory)
    summary = json.loads(done.stdout.splitlines()[-1])
    key = json.loads(Path(summary["credentials"]).read_text())["engine_api_key"]
    ranks, page = [started(node, inventory) for node in NODES], page_started(inventory)

    checked = succeeds("up", inventory=inventory, options=["--check", "--json"])
    assert [started(node, inventory) for node in NODES] == ranks

    url, headers = f"{summary['services'][0]['api'][0]}/models", {"Authorization": f"Bearer {key}"}
    with asked_all_along(url, headers) as failures:
        restarts = announced(succeeds("up", inventory=inventory, options=["--json"]))
    assert restarts == announced(checked)
    print(*restarts, sep="\n")
    of_ranks = [text for text in restarts if text.startswith("Replica 0")]
    assert bool(of_ranks) == ([started(node, inventory) for node in NODES] != ranks)
    assert bool(of_ranks) == bool(failures)
    assert ("The chat page" in " ".join(restarts)) == (page_started(inventory) != page)
    assert VERSION not in tools_version(inventory)
    again: Service = bring_up(inventory=inventory)
    assert again.changed == 0
    assert again.api_key == key


def test_a_controller_reads_what_the_earlier_one_stored(inventory: Path) -> None:
    for verb in ("status", "credentials", "report"):
        options = ["-o", str(inventory.parent / "report.html")] if verb == "report" else ["--json"]
        succeeds(verb, inventory=inventory, options=options)
