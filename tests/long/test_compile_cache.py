"""What torch.compile wrote on one start is what the next one has: on the lab, with a real C++ compiler.

The engine's image has no compiler, and SGLang compiles nothing on CPUs unless it is told to: the nodes get
Debian's g++ and PyTorch's headers, which the ranks mount.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from readme_lab import ROOT, SMALL, bring_up, deploy, hello, on_node, own_lab, started, succeeds

pytestmark = pytest.mark.lab
HEADERS, TORCH = "/opt/gxx/usr/include/python3.11", "/opt/gxx/opt/torch/include"
INVENTORY = f"""\
[head]
node1 ansible_host=10.213.96.11

[workers]
node2 ansible_host=10.213.96.12

[all:vars]
lab_subnet=10.213.96.0/24
lab_memory=5g
router_image_source=build
model_source=demo
served_model_name=headfirst-demo
engine_env=CXX=/opt/gxx/cxx TORCHDYNAMO_DISABLE=0
engine_volumes=/opt/gxx:/opt/gxx:ro {HEADERS}:/usr/include/python3.11:ro {TORCH}:/opt/site/torch/include:ro
{SMALL}"""
COMPILER = """\
#!/bin/sh
export LD_LIBRARY_PATH=/opt/gxx/usr/lib/x86_64-linux-gnu PATH=/opt/gxx/usr/bin:$PATH
exec x86_64-linux-gnu-g++-12 --sysroot=/opt/gxx "$@"
"""
NODES = ("node1", "node2")
CACHE = "/var/lib/headfirst/compile-cache"
COMPILED = f"find {CACHE}/live -type f -name '*.so'"
BEGUN = f"find {CACHE}/live -type f -name '*.cpp' 2>/dev/null || true"
PROVEN = f"find {CACHE} -path '*/.headfirst/proven'"


@pytest.fixture(scope="module")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiler, with the headers that it needs, as one folder."""
    folder = tmp_path_factory.mktemp("toolchain")
    root = folder / "gxx"
    words = ["mmdebstrap", "--variant=extract", "--include=g++,libpython3.11-dev", "bookworm", str(root)]
    subprocess.run(words, check=True)
    lock = ROOT / "py/headfirst/control/images/torch-cpu.lock"
    (torch,) = re.findall(r"^torch==[0-9.]+", lock.read_text(), re.MULTILINE)
    subprocess.run(["pip", "download", "--quiet", "--no-deps", "--dest", str(folder), torch], check=True)
    (wheel,) = folder.glob("torch-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(
            root / "opt", [name for name in archive.namelist() if name.startswith("torch/include/")]
        )
    (root / "cxx").write_text(COMPILER)
    (root / "cxx").chmod(0o755)
    return root


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory, toolchain: Path) -> Iterator[Path]:
    with own_lab(tmp_path_factory.mktemp("compiling") / "compiling.ini", INVENTORY) as path:
        succeeds("lab", "up", inventory=path)
        for node in NODES:
            pack = ["tar", "-C", str(toolchain.parent), "-c", "gxx"]
            archive = subprocess.Popen(pack, stdout=subprocess.PIPE)
            into = ["docker", "exec", "--interactive", f"headfirst-compiling-{node}"]
            subprocess.run([*into, "tar", "-C", "/opt", "-x"], stdin=archive.stdout, check=True)
            assert archive.wait() == 0
        yield path


def compiled_since_start(node: str, inventory: Path, container: str = "headfirst-engine") -> list[str]:
    """Libraries that the rank has compiled itself since it was started; those of before keep their time."""
    since = f"docker inspect --format '{{{{.State.StartedAt}}}}' {container}"
    return on_node(node, f'{COMPILED} -newermt "$({since})"', inventory).split()


def proven(inventory: Path) -> list[str]:
    return [path for node in NODES for path in on_node(node, PROVEN, inventory).split()]


def test_a_rank_that_is_killed_while_it_compiles_leaves_nothing_that_is_used(inventory: Path) -> None:
    killed = threading.Event()

    def kill() -> None:
        while not killed.wait(0.5):
            if on_node("node2", BEGUN, inventory):
                on_node("node2", "docker kill headfirst-engine", inventory)
                killed.set()

    killing = threading.Thread(target=kill)
    killing.start()
    done = deploy("up", inventory=inventory)
    was_killed = killed.is_set()
    killed.set()
    killing.join()
    assert was_killed and done.returncode == 1, done.stdout[-2000:]
    assert proven(inventory) == []


def test_what_all_ranks_compiled_is_used_when_they_start_again(inventory: Path) -> None:
    service = bring_up(inventory=inventory)
    assert all(compiled_since_start(node, inventory) for node in NODES)
    assert len(proven(inventory)) == 2
    before = started("node2", inventory)
    on_node("node2", "docker kill headfirst-engine", inventory)  # its supervisor starts all ranks again
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if started("node2", inventory) != before and deploy("status", inventory=inventory).returncode == 0:
            break
        time.sleep(5)
    assert hello(service.api, service.api_key)
    assert [compiled_since_start(node, inventory) for node in NODES] == [[], []]


def test_a_replica_starts_with_what_the_first_one_compiled(inventory: Path) -> None:
    service = bring_up("-e", "replicas=2", inventory=inventory)
    assert compiled_since_start("node1", inventory)
    assert compiled_since_start("node2", inventory, "headfirst-engine-1") == []
    assert on_node("node2", COMPILED, inventory)
    assert hello(service.api, service.api_key)
    records = f"cat {CACHE}/*/config.json"
    starts = {json.loads(on_node(node, records, inventory))["start"] for node in NODES}
    assert len(starts) == 1 and len(proven(inventory)) == 2
    # Those of the two ranks that served before went with the containers that mounted them.
    assert deploy("down", inventory=inventory, options=["-e", "replicas=2"]).returncode == 0
    assert [on_node(node, f"ls {CACHE} 2>/dev/null || true", inventory) for node in NODES] == ["", ""]
