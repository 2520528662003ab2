"""`deploy plan` for people: the verdict first, fourteen hosts on two screens, and commands that are exact."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
from headfirst.common.errors import InputError
from headfirst.control.cli.app import app
from headfirst.control.cli.shown.commands import differences
from headfirst.control.cli.shown.plan import spans
from headfirst.decide.plan.types import Plan
from typer.testing import CliRunner, Result

pytestmark = pytest.mark.usefixtures("no_hub")

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(path.name for path in (ROOT / "inventories").glob("*.ini"))
SCREEN = 50
COLUMNS = 80


def fourteen(folder: Path, settings: str = "hca=mlx5_0\n") -> Path:
    """Three models on fourteen hosts: four that share one, eight alone, two in quarters."""

    def hosts(first: int, last: int) -> str:
        return "".join(f"node{n:02} ansible_host=192.0.2.{n}\n" for n in range(first, last + 1))

    path = folder / "cluster.ini"
    path.write_text(
        f"[big]\n{hosts(1, 4)}[big:vars]\nmodel=deepseek-ai/DeepSeek-R1\ntrust_remote_code=true\n"
        f"[chat]\n{hosts(5, 12)}[chat:vars]\nmodel=Qwen/Qwen3-32B\nreplicas=8\n"
        f"[embedding]\n{hosts(13, 14)}[embedding:vars]\nmodel=Qwen/Qwen3-Embedding-8B\ntask=embedding\n"
        f"gpus_per_replica=4\nreplicas=4\n"
        f"[all:vars]\nansible_user=root\ngpus=8\ngpu=H100-80G\nnic=eth0\n{settings}model_source=modelscope\n"
    )
    return path


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["plan", *map(str, words)], env={"COLUMNS": str(COLUMNS)})


def on_terminal(*words: object) -> list[str]:
    """The lines on a terminal of 80 columns."""
    env = {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1"}
    result = CliRunner().invoke(app, ["plan", *map(str, words)], env=env)
    assert result.exit_code == 0, result.output
    return re.sub(r"\x1b\[[\d;]*m", "", result.output).splitlines()


def test_fourteen_hosts_are_on_two_screens(tmp_path: Path) -> None:
    lines = on_terminal(fourteen(tmp_path))
    assert len(lines) <= 2 * SCREEN, "\n".join(lines)
    # A command or a path is not broken.
    wide = [line for line in lines if len(line.rstrip()) > COLUMNS and "deploy plan" not in line]
    assert wide == []
    text = "\n".join(lines)
    for name in ("node02…node04", "node05…node12", "chat/0…chat/7", "192.0.2.2…192.0.2.4"):
        assert name in text, text


def test_the_verdict_is_the_first_line_and_warnings_follow(tmp_path: Path) -> None:
    lines = on_terminal(fourteen(tmp_path, ""))
    assert lines[0].startswith("Fits: ") and "(big)" in lines[0]
    first = next(line for line in lines[1:] if line.startswith("Warning: "))
    assert first.startswith("Warning: big: The tensor-parallel ranks are on 4 nodes")


PAIR = "[head]\nn1 ansible_host=192.0.2.1\n[workers]\nn2 ansible_host=192.0.2.2\n[all:vars]\n"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ((), "The tensor-parallel ranks are on 2 nodes, and it is not known whether RDMA connects them"),
        (("hca=none", "tensor_parallel=16"), "The tensor-parallel ranks are on 2 nodes, and no RDMA"),
        (("hca=none", "tensor_parallel=16", 'engine_args="--ep-size 16"'), "The experts are on 2 nodes"),
        (("hca=mlx5_0",), ""),
        (("hca=none",), ""),  # pipeline stages are on different nodes
    ],
)
def test_ranks_that_share_layers_over_tcp_are_warned_of(
    settings: Sequence[str], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "pair.ini"
    own = "gpus=8\ngpu=H100-80G\nmodel=deepseek-ai/DeepSeek-R1\nmodel_source=modelscope\n"
    path.write_text(PAIR + own + "\n".join(settings) + "\n")
    plan = Plan.model_validate_json(run(path, "--json").stdout)
    warnings = plan.services[0].warnings
    assert [warning.startswith(words) for warning in warnings] == ([True] if words else [])


def applied(base: list[str], changes: list[str]) -> list[str]:
    """What a person makes of the command by the printed lines."""
    made, at = list(base), 0
    for change in changes:
        mark, line = change[:2], change[2:]
        if mark == "+ ":
            made.insert(at, line)
            at += 1
            continue
        at = made.index(line, at)
        if mark == "- ":
            del made[at]
        else:
            at += 1
    return made


@pytest.mark.parametrize("inventory", [*SHIPPED, "fourteen"])
def test_what_is_printed_of_a_command_makes_it(inventory: str, tmp_path: Path) -> None:
    path = fourteen(tmp_path) if inventory == "fourteen" else ROOT / "inventories" / inventory
    plan = Plan.model_validate_json(run(path, "--json").stdout)
    planned = {
        (node.host, node.container.name): node.docker_run
        for service in plan.services
        for replica in service.replicas
        for node in replica.nodes
    }
    routers = [router for service in plan.services for router in service.routers]
    for part in filter(None, [*routers, plan.webui, plan.proxy]):
        planned[part.host, part.container.name] = part.docker_run
    shown = run(path, "--commands").output
    blocks = shown.partition("\n# ")[2].rpartition("\nAs scripts")[0].split("\n\n# ")
    whole: dict[str, list[str]] = {}
    made = []
    for block in blocks:
        title, *lines = block.splitlines()
        name, _, base = title.partition(": as ")
        name, _, host = name.rpartition(" on ")
        command = applied(whole[base], lines) if base else "\n".join(lines).split(" \\\n")
        whole[name] = command
        made.append((host, shlex.split(" ".join(command))))
    assert sorted(made) == sorted((host, line) for (host, _), line in planned.items())
    workers = sum(len(replica.nodes) - 1 for service in plan.services for replica in service.replicas)
    assert sum("docker run" in block for block in blocks) <= len(blocks) - workers


def test_an_addition_follows_the_line_before_it() -> None:
    base, other = ["docker run", "--a", "image"], ["docker run", "--a", "--b 1", "image"]
    assert differences(base, other) == ["  --a", "+ --b 1"]
    assert applied(base, differences(base, other)) == other


def test_commands_are_asked_for(tmp_path: Path) -> None:
    path = fourteen(tmp_path)
    output = run(path).output
    assert "docker run" not in output.rpartition("\nCommands: ")[0]
    alone = tmp_path / "alone.ini"
    alone.write_text(
        "[head]\nn1 ansible_host=192.0.2.1 gpus=8 gpu=H100-80G\n[all:vars]\nmodel=Qwen/Qwen3-8B\n"
    )
    explained = "A command that is like an earlier one"
    assert explained in run(path, "--commands").output and explained not in run(alone, "--commands").output
    assert f"deploy plan {path} --commands" in output and "--json" in output.splitlines()[-1]
    for option in ("--json", "--svg"):
        assert isinstance(run(path, "--commands", option).exception, InputError)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("node01", "node02", "node03"), "node01…node03"),
        (("node9", "node10", "node11"), "node9…node11"),
        (("node1", "node2"), "node1, node2"),
        (("a", "b", "c"), "a, b, c"),
        (("n1", "n3", "n4", "n5"), "n1, n3…n5"),
        (("0",), "0"),
        (("x08", "x09", "x10", "x10"), "x08…x10"),
        (("", ""), ""),
    ],
)
def test_consecutive_names_are_a_span(words: Sequence[str], text: str) -> None:
    assert spans(words) == text


def test_a_model_that_does_not_fit_is_the_first_line(tmp_path: Path) -> None:
    result = run(ROOT / "inventories/h200x1.ini", "-e", "gpu=A100-80G")
    assert result.output.startswith("Does not fit: DeepSeek-R1.")
    assert "--commands" not in result.output
    assert isinstance(result.exception, InputError)
