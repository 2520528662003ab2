"""`deploy render --to slurm` on a real Slurm of two virtual nodes, with the real engine without GPUs.

No container runs: the packages of the lab's engine image are a virtual environment here.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from headfirst.control import demo
from headfirst.control.deployment.lab_nodes import share_dir
from headfirst.control.images import build
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.containers.image import PREFIX
from headfirst.decide.engines import get as engine_of
from readme_lab import ROOT, succeeds
from slurm_cluster import SlurmCluster

pytestmark = pytest.mark.lab
START_S = 400


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with SlurmCluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine without a container: what its image has above Debian."""
    cpu = engine_of("sglang", None).image_recipe("cpu")
    assert cpu is not None
    image = build.build(cpu, share_dir() / "images", lambda *_: None)
    folder = tmp_path_factory.mktemp("engine")
    with tarfile.open(image.path) as archive:
        layer = archive.extractfile("1/layer.tar")
        assert layer is not None
        with tarfile.open(fileobj=layer, mode="r|") as packages:
            packages.extractall(folder, filter="tar")
    made = folder / "venv"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(made)], check=True)
    (site,) = made.glob("lib/python3*/site-packages")
    (site / "engine.pth").write_text(f"{folder}{PREFIX}\n")
    return made


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where the job is submitted, with what `deploy render` made, and the model."""
    folder = tmp_path_factory.mktemp("job")
    options = ["--to", "slurm", "--container", "none", "-o", str(folder)]
    succeeds("render", options=[*options, "-e", f"weights_dir={folder}/models"])
    subprocess.run([folder / "make-secrets.sh"], check=True)
    return folder


@pytest.fixture(scope="module")
def model(job: Path) -> Path:
    target = job / "models" / "headfirst-demo-bf16"
    target.parent.mkdir()
    weights = str(ROOT / ".venv" / "bin" / "headfirst-weights")
    subprocess.run([weights, "convert", str(demo.checkpoint_dir()), str(target)], check=True)
    return target


class Job:
    """A job that was submitted, and its log."""

    def __init__(self, cluster: SlurmCluster, folder: Path, venv: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self.id = cluster.submit(folder / "headfirst-engine.sbatch", {"HEADFIRST_VENV": str(venv)})

    @property
    def log(self) -> str:
        path = self._folder / f"headfirst-engine-{self.id}.log"
        return path.read_text() if path.exists() else ""

    def rank_log(self, rank: int) -> Path:
        return self._folder / f"headfirst-engine-{self.id}-rank{rank}.log"

    def until_ready(self) -> str:
        """The address of the API."""
        end = time.monotonic() + START_S
        while "ready: " not in self.log:
            assert self._cluster.state(self.id) in ("PENDING", "RUNNING", "CONFIGURING"), self.log
            assert time.monotonic() < end, self.log
            time.sleep(1)
        return self.log.partition("ready: ")[2].strip()

    def until_over(self, seconds: float) -> str:
        """Its last state."""
        end = time.monotonic() + seconds
        while (state := self._cluster.state(self.id)) in ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING"):
            assert time.monotonic() < end, (state, self.log)
            time.sleep(0.5)
        return state


def ranks_of(folder: Path) -> dict[int, int]:
    """Process ids by rank of the engine that serves this folder's model."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text().split("\0")
        except (OSError, UnicodeDecodeError):
            continue
        if "--node-rank" in words and any(word.startswith(str(folder)) for word in words):
            found[int(words[words.index("--node-rank") + 1])] = int(path.parent.name)
    return found


def test_without_the_weights_nothing_starts(cluster: SlurmCluster, job: Path, venv: Path) -> None:
    submitted = Job(cluster, job, venv)
    assert submitted.until_over(60) == "FAILED"
    assert "headfirst-demo-bf16 on" in submitted.log
    assert "A host is not ready; nothing was started." in submitted.log


def test_a_job_on_two_nodes_answers_and_ends_as_one(
    cluster: SlurmCluster, job: Path, venv: Path, model: Path
) -> None:
    began = time.monotonic()
    submitted = Job(cluster, job, venv)
    api = submitted.until_ready()
    print(f"ready after {time.monotonic() - began:.0f} s")
    assert api == f"http://{cluster.addresses[0]}:{ServiceSettings().engine_port}/v1"
    assert f"hosts: n1 n2; head: {cluster.addresses[0]}" in submitted.log
    key = (job / "secrets" / "api-key").read_text().strip()
    body = {"model": "headfirst-demo", "messages": [{"role": "user", "content": "Hello!"}], "temperature": 0}
    asked = ["curl", "--silent", "--noproxy", "*", f"{api}/chat/completions", "--json", json.dumps(body)]
    assert "error" in json.loads(cluster.run(*asked).stdout)  # without the key
    answer = json.loads(cluster.run(*asked, "--header", f"Authorization: Bearer {key}").stdout)
    assert answer["choices"][0]["message"]["content"] == demo.answers()["Hello!"]
    for rank in (0, 1):
        # The engine prints its settings, and its key with them.
        assert submitted.rank_log(rank).stat().st_mode & 0o777 == 0o600
    assert key not in submitted.log
    # A rank that ends takes the other with it.
    ranks = ranks_of(job)
    assert set(ranks) == {0, 1}
    subprocess.run(["kill", "-9", str(ranks[1])], check=True)
    assert submitted.until_over(60) == "FAILED"
    assert ranks_of(job) == {}


def test_a_cancelled_job_leaves_no_rank(cluster: SlurmCluster, job: Path, venv: Path, model: Path) -> None:
    submitted = Job(cluster, job, venv)
    submitted.until_ready()
    cluster.run("scancel", submitted.id)
    assert submitted.until_over(60) == "CANCELLED"
    end = time.monotonic() + 30
    while ranks_of(job) and time.monotonic() < end:
        time.sleep(0.5)
    assert ranks_of(job) == {}
