"""The job of prefill and decode replicas on a real Slurm of two virtual nodes, with the real router.

The replicas are programs that answer without a model: what is proven is where each step runs, and that the
router has them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from headfirst.decide.cluster.settings import ServiceSettings
from readme_lab import ROOT, deploy
from slurm_cluster import SlurmCluster

SETTINGS = ServiceSettings()
pytestmark = pytest.mark.lab
# Answers as an engine at the address, the port and with the key of its command line.
VLLM = f"""\
#!/bin/bash
while [ $# -gt 0 ]; do
  case "$1" in
  --host) host=$2 ;;
  --port) port=$2 ;;
  --config) KEY=$(awk -F '"' '{{print $2}}' "$2") ;;
  esac
  shift
done
export KEY
exec {sys.executable} {ROOT}/tests/slow_worker.py "$port" "$host"
"""


def submitted(folder: Path, cluster: SlurmCluster) -> str:
    """The id of the job that `deploy render` writes for one replica of each side."""
    options = ["--to", "slurm", "--container", "none", "-o", str(folder)]
    sides = ["-e", "prefill_replicas=1", "-e", "decode_replicas=1", "-e", f"weights_dir={folder}/models"]
    inventory = ROOT / "inventories" / "lab-disaggregated.ini"
    done = deploy("render", options=[*options, *sides], inventory=inventory)
    assert done.returncode == 0, done.stderr
    assert "router" not in done.stderr
    subprocess.run([folder / "make-secrets.sh"], check=True)
    model = folder / "models" / "headfirst-demo-bf16"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_text("x")
    programs = folder / "venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "activate").write_text(f"PATH={programs}:$PATH\n")
    (programs / "vllm").write_text(VLLM)
    (programs / "vllm").chmod(0o755)
    environment = {
        "HEADFIRST_VENV": str(programs.parent),
        "HEADFIRST_ROUTER_VENV": sys.prefix,
    }
    return cluster.submit(folder / "headfirst-engine.sbatch", environment)


def test_the_router_of_a_job_has_the_replicas_of_its_hosts(tmp_path: Path) -> None:
    with SlurmCluster(tmp_path) as cluster:
        folder = tmp_path / "job"
        job = submitted(folder, cluster)
        log = folder / f"headfirst-engine-{job}.log"
        end = time.monotonic() + 120
        while not (log.exists() and "ready: " in log.read_text()):
            assert time.monotonic() < end, {
                path.name: path.read_text()[-2000:] for path in folder.glob("*.log")
            }
            time.sleep(0.5)
        assert f"ready: http://{cluster.addresses[0]}:{SETTINGS.router_port}/v1" in log.read_text()
        key = (folder / "secrets" / "api-key").read_text().strip()
        body = {"model": "slow", "messages": [{"role": "user", "content": "Hello!"}]}
        body |= {"max_tokens": 1, "temperature": 0}
        url = f"http://{cluster.addresses[0]}:{SETTINGS.router_port}/v1/chat/completions"
        words = ["curl", "--silent", "--noproxy", "*", url, "--json", json.dumps(body)]
        answer = cluster.run(*words, "--header", f"Authorization: Bearer {key}")
        assert json.loads(answer.stdout)["choices"][0]["message"]["content"] == str(SETTINGS.engine_port)
        logs = [
            log.with_name(f"headfirst-engine-{job}-{step}.log")
            for step in ("replica0-rank0", "replica1-rank0", "router")
        ]
        for path in logs:
            assert key not in path.read_text()
            assert path.stat().st_mode & 0o777 == 0o600
        # A step that ends takes the others with it.
        decode = f"{job}.2"
        assert decode in cluster.run("squeue", "--steps", "--noheader", "--format=%i").stdout.split()
        cluster.run("scancel", decode)
        while cluster.state(job) in ("RUNNING", "COMPLETING"):
            assert time.monotonic() < end
            time.sleep(0.5)
        assert cluster.state(job) == "FAILED"
