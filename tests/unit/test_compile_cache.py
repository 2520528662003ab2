"""What ranks compile: which starts share it, what a node keeps of it, and what the next start has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils import compile_cache as on_nodes
from headfirst.common.errors import NotReadyError
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.role_vars.weights import compile_cache_hosts, compile_cache_vars
from headfirst.decide.engines import access
from headfirst.decide.engines import compile_cache as in_image
from headfirst.decide.plan.compile_cache import PROGRAM
from headfirst.decide.plan.types import CompileCache, PlannedService
from headfirst.node.weights import compile_cache
from run_variables import up_of

TWO_HOSTS = (
    "[head]\nn1 ansible_host=10.0.0.1\n[workers]\nn2 ansible_host=10.0.0.2\n{more}\n"
    "[all:vars]\ngpus=8\ngpu=H100-80G\nnic=eth0\nhca=none\nmodel=Qwen/Qwen3-32B\n"
)

CACHE = {"name": "g-0", "environment": {"TRITON_CACHE_DIR": f"{on_nodes.LIVE}/triton"}, "program": PROGRAM}
SPARE = "[spares]\nn3 ansible_host=10.0.0.3"


def planned(folder: Path, *settings: str, more: str = "") -> PlannedService:
    path = folder / "cluster.ini"
    path.write_text("\n".join((TWO_HOSTS.format(more=more), *settings)))
    return prepare([path], [], probe=False).plan.services[0]


def names(service: PlannedService) -> list[list[str | None]]:
    return [
        [node.compile_cache.name if node.compile_cache else None for node in replica.nodes]
        for replica in service.replicas
    ]


def test_replicas_and_takeovers_share_what_other_arguments_do_not(tmp_path: Path) -> None:
    ((first, second),) = names(planned(tmp_path))
    assert first and second and first.removesuffix("-0") == second.removesuffix("-1")
    ((again, _),) = names(planned(tmp_path, "engine_port=31000", "dist_port=5500", "shm_size=1g"))
    assert again == first
    for setting in ("engine_args=--context-length 4096", "engine_image=mine/sglang:1", "engine_env=A=1"):
        assert first not in names(planned(tmp_path, setting))[0]
    one, other = names(planned(tmp_path, "replicas=2"))
    assert one == other
    with_spare = planned(tmp_path, "spare_takeover=true", more=SPARE)
    waiting = [node.compile_cache for standby in with_spare.standbys for node in standby.replica.nodes]
    assert {cache.name for cache in waiting if cache} == {first, second}


@pytest.mark.parametrize(
    "setting", ["engine_cache_dir=none", "engine_cache_dir=/data/cache", "engine=lmdeploy"]
)
def test_no_cache_of_ours(tmp_path: Path, setting: str) -> None:
    assert {name for replica in names(planned(tmp_path, setting)) for name in replica} == {None}


def test_a_container_that_runs_is_as_planned_without_it(tmp_path: Path) -> None:
    without, with_it = planned(tmp_path, "engine_cache_dir=none"), planned(tmp_path)
    assert [node.container for _, node in without.ranks] == [node.container for _, node in with_it.ranks]
    own = planned(tmp_path, "engine_env=TRITON_CACHE_DIR=/mine")
    assert "TRITON_CACHE_DIR" not in own.replicas[0].nodes[0].compile_cache.environment  # type: ignore[union-attr]


def test_all_hosts_that_start_alike_get_what_each_rank_compiled(tmp_path: Path) -> None:
    path = tmp_path / "cluster.ini"
    path.write_text(TWO_HOSTS.format(more="") + "replicas=2\n")
    prepared = prepare([path], [], probe=False)
    cluster, (service,) = prepared.cluster, prepared.plan.services
    first, second = service.replicas
    assert compile_cache_hosts(cluster, service, first) == ["n1", "n2"]
    of_hosts = compile_cache_vars(up_of(cluster, prepared.plan), service, first)
    # Ansible does what differs by host for one host after the other.
    (cache,) = of_hosts["n1"]["compile_caches"]
    assert of_hosts["n2"]["compile_caches"] == [cache] and of_hosts["n2"]["compile_caches_own"] == []
    assert of_hosts["n1"]["compile_caches_own"] == [cache["name"]]
    assert cache["members"] == [of_hosts[host]["weights_address"] for host in ("n1", "n2")]
    path.write_text(TWO_HOSTS.format(more=SPARE))
    prepared = prepare([path], [], probe=False)
    ranks = prepared.plan.services[0].replicas[0]
    up = up_of(prepared.cluster, prepared.plan)
    with_spare = compile_cache_vars(up, prepared.plan.services[0], ranks)
    assert {host: len(variables["compile_caches"]) for host, variables in with_spare.items()} == {
        "n1": 2,
        "n2": 2,
        "n3": 2,
    }
    # The first one gives.
    assert compile_cache_vars(up_of(cluster, prepared.plan), service, second) == {}
    assert compile_cache_hosts(cluster, planned(tmp_path), planned(tmp_path).replicas[0]) == []


@pytest.mark.parametrize(
    ("spec", "entrypoint", "command"),
    [
        ({"command": ["vllm", "serve"]}, None, ["python3", *PROGRAM, "vllm", "serve"]),
        ({"entrypoint": "bash", "command": ["-c", "x"]}, "python3", [*PROGRAM, "bash", "-c", "x"]),
    ],
)
def test_the_command_of_a_container_comes_behind_it(spec: Any, entrypoint: Any, command: list[str]) -> None:
    spec = {"environment": {}, "volumes": ["/m:/m:ro"], "files": {}, **spec}
    added = on_nodes.added(spec, CACHE, "headfirst-engine.0123")
    assert (added["entrypoint"], added["command"]) == (entrypoint, command)
    assert added["volumes"][1:3] == [
        f"{on_nodes.FOLDER}/g-0:{on_nodes.KEPT}:ro",
        f"{on_nodes.FOLDER}/live/headfirst-engine:{on_nodes.LIVE}",
    ]
    started = [*filter(None, [entrypoint]), *command]
    assert (
        list(access.as_planned(started))
        == list(access.unchecked(started))
        == [*filter(None, [spec.get("entrypoint")]), *spec["command"]]
    )


def test_what_no_container_has_any_more_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_nodes, "FOLDER", str(tmp_path))

    def container(group: str, name: str) -> dict[str, Any]:
        return {
            "Mounts": [
                {"Source": str(tmp_path / group)},
                {"Source": str(tmp_path / "live" / name)},
                {"Source": "/m"},
            ]
        }

    for folder in ("a-0", "a-1", "b-0", "live/e", "live/e-1"):
        (tmp_path / folder).mkdir(parents=True)

    def left() -> list[str]:
        return sorted(
            path.relative_to(tmp_path).as_posix()
            for path in [*tmp_path.glob("?-*"), *tmp_path.glob("live/*")]
        )

    def remove(gone: dict[str, Any], *others: dict[str, Any]) -> None:
        on_nodes.remove(on_nodes.mounted([gone]) - on_nodes.mounted(others))

    remove(container("a-0", "e"), container("a-1", "e-1"), container("b-0", "e"))
    assert left() == ["a-0", "a-1", "b-0", "live/e", "live/e-1"]
    remove(container("a-1", "e-1"), container("b-0", "e"))
    assert left() == ["b-0", "live/e"]


# -- what a node keeps, and what a container has of it --------------------------------------------------


class Node:
    """A node whose rank compiled two files."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kept, self.live, self.started = folder / "g-0", folder / "live" / "e", "1"
        self.live.mkdir(parents=True)
        self.kept.mkdir()
        for module in (compile_cache, on_nodes):
            monkeypatch.setattr(module, "FOLDER", str(folder))
        monkeypatch.setattr(compile_cache, "_described", self.described)
        (self.live / "triton").mkdir()
        for name in ("triton/kernel.so", "plan.json", "plan.json.lock"):
            (self.live / name).write_text(f"text of {name}")
            os.utime(self.live / name, ns=(10**18, 10**18))
        (self.live / "triton/kernel.so").chmod(0o755)
        (self.live / "out").symlink_to("/etc/hostname")

    def described(self, name: str) -> Any:
        mounts = {on_nodes.KEPT: str(self.kept), on_nodes.LIVE: str(self.live)}
        return SimpleNamespace(started=self.started, image_id="sha256:1"), mounts

    def restored(self) -> dict[str, str]:
        """What the next start finds."""
        in_image.empty(self.live)
        in_image.restore(self.kept, self.live)
        files = (path for path in self.live.rglob("*") if path.is_file())
        return {path.relative_to(self.live).as_posix(): path.read_text() for path in files}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_the_next_start_has_what_was_proven(node: Node) -> None:
    assert compile_cache.state(node.kept) == "none"
    assert compile_cache.take("e", "s1") == node.kept
    assert compile_cache.state(node.kept) == "kept s1"
    assert node.restored() == {}  # other ranks may have failed
    compile_cache.prove(node.kept)
    assert compile_cache.state(node.kept) == "proven s1"
    assert node.restored() == {
        "triton/kernel.so": "text of triton/kernel.so",
        "plan.json": "text of plan.json",
    }
    kernel = (node.live / "triton/kernel.so").stat()
    assert kernel.st_mtime_ns == 10**18 and kernel.st_mode & 0o100
    compile_cache.drop(node.kept)
    assert compile_cache.state(node.kept) == "none" and node.restored() == {}


def test_other_bytes_than_those_that_were_proven_are_not_used(node: Node) -> None:
    compile_cache.take("e", "s1")
    compile_cache.prove(node.kept)
    archive = node.kept / compile_cache.ARCHIVE
    archive.write_bytes(archive.read_bytes().replace(b"text of plan", b"other  plan!"))
    with pytest.raises(ValueError, match="not what was proven"):
        node.restored()


@pytest.mark.parametrize("name", ["/etc/passwd", "../passwd"])
def test_an_archive_reaches_no_other_folder(node: Node, name: str) -> None:
    with tarfile.open(node.kept / "a.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    with tarfile.open(node.kept / "a.tar") as archive, pytest.raises(ValueError, match="no file"):
        in_image.extract(archive, archive.getmembers()[0], node.live)


def writes(node: Node) -> None:
    (node.live / "plan.json").write_text("more")


def ends(node: Node) -> None:
    node.started = "2"


@pytest.mark.parametrize(("meanwhile", "why"), [(writes, "still compiles"), (ends, "started again")])
def test_what_changes_while_it_is_taken_is_not_kept(
    node: Node, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Node], None], why: str
) -> None:
    compile_cache.take("e", "s1")
    compile_cache.prove(node.kept)
    write = compile_cache._write

    def interrupted(*arguments: Any) -> None:
        write(*arguments)
        meanwhile(node)

    monkeypatch.setattr(compile_cache, "_write", interrupted)
    with pytest.raises(NotReadyError, match=why):
        compile_cache.take("e", "s2")
    assert compile_cache.state(node.kept) == "none" and node.restored() == {}


@pytest.mark.parametrize("step", ["_write", "replace_file", "pinned_now"])
def test_a_run_that_ends_at_any_step_leaves_nothing_that_is_used(
    node: Node, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    compile_cache.take("e", "s1")
    compile_cache.prove(node.kept)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as during, pytest.raises(KeyboardInterrupt):
        during.setattr(compile_cache, step, killed)
        compile_cache.take("e", "s2")
    assert compile_cache.state(node.kept) == "none" and node.restored() == {}
    (node.live / "plan.json").write_text("next")
    os.utime(node.live / "plan.json", ns=(10**18, 10**18))
    assert compile_cache.take("e", "s3") == node.kept


def test_a_host_without_ranks_keeps_what_is_planned_or_mounted(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    containers = [SimpleNamespace(attrs={"Mounts": [{"Source": f"{node.kept.parent}/b-0"}]})]
    client = SimpleNamespace(containers=SimpleNamespace(list=lambda **_: containers))
    monkeypatch.setattr(compile_cache, "docker", SimpleNamespace(from_env=lambda: client))
    for name in ("a-0", "a-1", "b-1", "c-0"):
        (node.kept.parent / name).mkdir()
    compile_cache.prune(["a-0"])
    assert sorted(path.name for path in node.kept.parent.iterdir()) == ["a-0", "a-1", "b-1", "live"]


def test_nothing_and_too_much(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_cache, "LIMIT", 10)
    with pytest.raises(NotReadyError, match="there is room for"):
        compile_cache.take("e", "s1")
    in_image.empty(node.live)
    assert compile_cache.take("e", "s1") is None


def test_the_program_runs_the_command_whatever_is_kept(node: Node) -> None:
    compile_cache.take("e", "s1")
    compile_cache.prove(node.kept)
    ((_, text),) = PROGRAM.items()
    text = text.replace(on_nodes.KEPT, str(node.kept)).replace(on_nodes.LIVE, str(node.live))
    command = [sys.executable, "-c", text, sys.executable, "-c", "import os; print(sorted(os.listdir('.')))"]

    def run() -> tuple[str, str]:
        done = subprocess.run(command, cwd=node.live, capture_output=True, text=True, check=True)
        return done.stdout.strip(), done.stderr

    assert run() == ("['plan.json', 'triton']", "")
    (node.kept / compile_cache.ARCHIVE).write_bytes(b"short")
    found, why = run()
    assert found == "[]" and why.startswith("What was compiled before is not used: ")


def test_a_user_who_cannot_write_there_compiles_in_the_container(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_image, "LIVE", node.live)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setenv("TRITON_CACHE_DIR", f"{node.live}/triton")
    in_image.prepare()
    assert "TRITON_CACHE_DIR" not in os.environ and (node.live / "plan.json").is_file()


def test_kernels_that_the_image_has_are_found(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("FLASHINFER_WORKSPACE_BASE", "TRITON_CACHE_DIR")
    monkeypatch.setattr(in_image, "LIVE", node.live)
    monkeypatch.setenv("HOME", str(node.kept))
    for name in names:
        monkeypatch.setenv(name, f"{node.live}/x")
    in_image.prepare()
    assert [name in os.environ for name in names] == [True, True]
    (node.kept / ".cache/flashinfer").mkdir(parents=True)
    in_image.prepare()
    assert [name in os.environ for name in names] == [False, True]


def test_plan_and_role_name_the_same_options() -> None:
    options = {**CompileCache.model_fields, "program": None}
    assert options.keys() == on_nodes.OPTIONS.keys() == CACHE.keys()
    assert json.loads(json.dumps(CACHE)) == CACHE
