"""Variables of roles that the plan decides: the list, what runs set, and what the pages mark."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from clusters import catalogued, read
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.artifacts import Artifacts, Tarball
from headfirst.control.inventory.decided import DECIDED
from headfirst.control.inventory.variables import role_options, role_variables
from headfirst.decide.cluster.settings import SETTING_NAMES
from run_variables import up_variables

ROOT = Path(__file__).resolve().parents[2]
HOSTS = "".join(f"node{number} ansible_host=192.0.2.{number}\n" for number in range(1, 5))
ALL = (
    f"[chat]\n{HOSTS}[chat:vars]\nmodel=deepseek-ai/DeepSeek-R1-Distill-Llama-70B\nreplicas=2\n"
    "[small]\nnode5 ansible_host=192.0.2.5\n[small:vars]\nmodel=Qwen/Qwen3-0.6B\nengine=vllm\n"
    "[monitoring]\nwatcher ansible_host=192.0.2.9\n[spares]\nspare ansible_host=192.0.2.10\n"
    "[all:vars]\ngpus=8\ngpu=H100-80G\nnic=eth0\nhca=none\nmodel_source=huggingface\nproxy=true\n"
    "http_proxy=http://192.0.2.99:3128\n"
)


def set_by_up(folder: Path, runtime: str) -> set[str]:
    """Names that a run of everything sets."""
    cluster = read(folder, f"{ALL}container_runtime={runtime}\n")
    plan = catalogued(cluster)
    file = Tarball(Path("-"), on_node=False)
    files = Artifacts(Path("-"), {container.image: file for container in plan.containers})
    secrets = Secrets().with_keys(service.name for service in cluster.services)
    return {name for values in up_variables(cluster, plan, secrets, files).values() for name in values}


def in_source() -> set[str]:
    """Variables of roles that the code of runs names."""
    trees = [ast.parse(path.read_text()) for path in (ROOT / "py/headfirst/control/deployment").rglob("*.py")]
    texts = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return {text for text in texts if isinstance(text, str)} & role_options().keys()


def test_the_list_is_what_runs_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert role_options().keys() >= DECIDED
    assert not DECIDED & SETTING_NAMES
    decided = (set_by_up(tmp_path, "docker") | set_by_up(tmp_path, "podman")) & role_options().keys()
    assert not decided - SETTING_NAMES - DECIDED, "add these to decided.py"
    # Other verbs set the rest. image_source makes names of a prefix; a bundle alone sets a wheelhouse.
    assert DECIDED - decided <= in_source(), "remove these from decided.py"
    assert in_source() - SETTING_NAMES - DECIDED == {"node_tools_wheelhouse"}


def test_the_pages_mark_them() -> None:
    rows = {
        line.split("`")[1]: line
        for path in (*ROOT.glob("roles/*/README.md"), ROOT / "docs/reference/roles.md")
        for line in path.read_text().splitlines()
        if line.startswith("| `")
    }
    marked = {name for name, row in rows.items() if "**Set by the plan.**" in row}
    # A page has the variables that a role's main part reads.
    assert marked == DECIDED & rows.keys()
    assert len(marked) > 120
    assert {variable.name for variable in role_variables() if variable.decided} == DECIDED
