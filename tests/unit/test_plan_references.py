"""The plan carries what the published commands carry (references/), in safer form where it says so."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from headfirst.cli.app import app
from headfirst.plan.types import Node, Plan
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
REFERENCES = Path(__file__).parent / "references"


def plan(inventory: str, *extra: str) -> Plan:
    result = CliRunner().invoke(app, ["plan", str(ROOT / "inventories" / inventory), "--json", *extra])
    assert result.exit_code == 0, result.output
    return Plan.model_validate(json.loads(result.stdout))


def reference(name: str) -> tuple[dict[str, str], dict[str, str | None]]:
    """Environment and engine flags of a published command."""
    words = shlex.split((REFERENCES / name).read_text())
    env = dict(words[index + 1].split("=", 1) for index, word in enumerate(words) if word == "-e")
    return env, flags(words[words.index("sglang.launch_server") + 1 :])


def flags(words: list[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for index, word in enumerate(words):
        if word.startswith("--"):
            following = words[index + 1] if index + 1 < len(words) else "--"
            found[word] = None if following.startswith("--") else following
    return found


def assert_carries(node: Node, name: str, safer: dict[str, str | None]) -> None:
    env, wanted = reference(name)
    assert env.items() <= node.container.environment.items()
    assert (wanted | safer).items() <= flags(node.container.command).items()


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_a100x4_carries_the_published_commands(rank: int) -> None:
    node = plan("a100x4.ini").nodes[rank]
    # The name of the converted weights says BF16, not FP16; the API listens where the ranks are only.
    safer: dict[str, str | None] = {"--model-path": "/data/DeepSeek-R1-bf16", "--node-rank": str(rank)}
    if rank == 0:
        safer["--host"] = "192.168.5.4"
    assert_carries(node, f"a100x4-rank{min(rank, 1)}.txt", safer)
    line = " ".join(node.docker_run)
    for part in ("--network host", "--shm-size 32g", "--ipc host", "--gpus all"):
        assert part in line
    # Instead of --privileged: the RDMA devices, and memory that may be pinned.
    for part in ("--device /dev/infiniband", "--cap-add IPC_LOCK", "--ulimit memlock=-1"):
        assert part in line
    for part in ("--privileged", " -p ", "--publish", ":latest"):
        assert part not in line
    assert "/data/DeepSeek-R1-bf16:/data/DeepSeek-R1-bf16:ro" in line


def test_a100x4_as_a_whole() -> None:
    whole = plan("a100x4.ini")
    assert (whole.tensor_parallel, whole.pipeline_parallel, whole.world_size) == (32, 1, 32)
    assert [node.rank for node in whole.nodes] == [0, 1, 2, 3]
    assert [node.address for node in whole.nodes] == [f"192.168.5.{n}" for n in (4, 5, 6, 7)]
    assert whole.convert_to_bf16
    assert "A100" in whole.convert_reason
    assert whole.fit.fits
    assert whole.webui.host == "node01"


@pytest.mark.parametrize(
    ("inventory", "tensor", "nodes"), [("h20x2.ini", 16, 2), ("h100x2.ini", 16, 2), ("h200x1.ini", 8, 1)]
)
def test_fp8_is_served_as_it_is_where_the_gpus_have_it(inventory: str, tensor: int, nodes: int) -> None:
    whole = plan(inventory)
    assert (whole.tensor_parallel, len(whole.nodes)) == (tensor, nodes)
    assert not whole.convert_to_bf16
    assert whole.fit.fits
    assert "--quantization" not in whole.nodes[0].container.command  # an FP8 checkpoint says so itself


def test_a100x1_70b_carries_the_published_command_without_the_key_in_sight() -> None:
    whole = plan("a100x1-70b.ini")
    node = whole.nodes[0]
    _, wanted = reference("a100x1-70b.txt")
    for flag in ("--model", "--api-key", "--host", "--trust-remote-code"):
        del wanted[flag]  # below, in safer form; and this Llama brings no code of its own to trust
    assert wanted.items() <= flags(node.container.command).items()
    given = flags(node.container.command)
    assert given["--model-path"] == "/data/deepseek-ai/models/DeepSeek-R1-Distill-Llama-70B"
    # The key lies in a file with mode 0600.
    assert given["--config"] == "/etc/headfirst/engine.yaml"
    assert "/etc/headfirst/engine.yaml:/etc/headfirst/engine.yaml:ro" in node.docker_run
    assert "--api-key" not in node.docker_run
    assert not whole.convert_to_bf16


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ('engine_args="--mem-fraction-statik 0.8"', "--mem-fraction-static"),
        ('engine_args="--mem-fraction-static lots"', "mem-fraction-static"),
        ('engine_args="--dtype bf17"', "bfloat16"),
        ("engine_args=--enable-ep-moe", "removed"),
        ('engine_args="--tp 16"', "tensor_parallel"),
        ("tensor_parallel=24", "divisible"),
        ("gpu=A100", "A100-80G"),
        ("gpus=7", "evenly"),
    ],
)
def test_what_cannot_work_is_refused_before_any_ssh(extra: str, message: str) -> None:
    result = CliRunner().invoke(app, ["plan", str(ROOT / "inventories" / "a100x4.ini"), "-e", extra])
    assert result.exception is not None
    assert getattr(result.exception, "exit_code", None) == 2
    assert message in str(result.exception)
