"""The plan carries what the published commands carry (references/), in safer form where it says so."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from clusters import nodes
from command import plan_of, refused
from headfirst.decide.plan.types import Node, Plan

ROOT = Path(__file__).resolve().parents[2]
REFERENCES = Path(__file__).parent / "references"


def plan(inventory: str, *extra: str) -> Plan:
    return plan_of(ROOT / "inventories" / inventory, *extra)


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
    node = nodes(plan("a100x4.ini"))[rank]
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
    service = whole.services[0]
    assert (service.tensor_parallel, service.pipeline_parallel, service.world_size) == (32, 1, 32)
    assert [node.rank for node in nodes(whole)] == [0, 1, 2, 3]
    assert [node.address for node in nodes(whole)] == [f"192.168.5.{n}" for n in (4, 5, 6, 7)]
    assert whole.services[0].convert_to_bf16
    assert "A100" in whole.services[0].convert_reason
    assert whole.services[0].fit.fits
    assert whole.webui is not None
    assert whole.webui.host == "node01"


@pytest.mark.parametrize(
    ("inventory", "tensor", "count"), [("h20x2.ini", 16, 2), ("h100x2.ini", 16, 2), ("h200x1.ini", 8, 1)]
)
def test_fp8_is_served_as_it_is_where_the_gpus_have_it(inventory: str, tensor: int, count: int) -> None:
    whole = plan(inventory)
    found = nodes(whole)
    assert (whole.services[0].tensor_parallel, len(found)) == (tensor, count)
    assert not whole.services[0].convert_to_bf16
    assert whole.services[0].fit.fits
    assert "--quantization" not in nodes(whole)[0].container.command  # an FP8 checkpoint says so itself


def test_a100x1_70b_carries_the_published_command_without_the_key_in_sight() -> None:
    whole = plan("a100x1-70b.ini")
    node = nodes(whole)[0]
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
    assert not whole.services[0].convert_to_bf16


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
    error = refused("plan", ROOT / "inventories" / "a100x4.ini", "-e", extra)
    assert getattr(error, "exit_code", None) == 2
    assert message in str(error)


def test_an_image_of_another_version_is_planned_with_a_note() -> None:
    (whole,) = plan("h200x1.ini", "-e", "engine_image=lmsysorg/sglang:v0.5.9").services
    assert (whole.engine_version, whole.engine_described_by) == ("0.5.9", "the snapshot of SGLang 0.5.23")
    assert whole.notes == [
        "engine_image=lmsysorg/sglang:v0.5.9 is of SGLang 0.5.9: arguments and models are checked against "
        "the snapshot of SGLang 0.5.23. `deploy plan --image` asks the image, and `deploy up` does before it "
        "starts a rank."
    ]


def test_replicas_that_the_inventory_does_not_set_are_a_rejected_layout() -> None:
    service = plan("h100x2.ini", "-e", "gpu=H200").services[0]
    assert service.notes == []
    assert service.layouts_rejected[-1].startswith(
        "The GPUs can hold 2 replicas; without replicas= in the inventory there is one. "
        "replicas=2 with gpus_per_replica=8 serve"
    )


@pytest.mark.parametrize(("hca", "sizes"), [("none", (8, 2)), ("mlx5_0", (16, 1))])
def test_the_inventory_tells_whether_there_is_rdma(hca: str, sizes: tuple[int, int]) -> None:
    (whole,) = plan("h100x2.ini", "-e", f"hca={hca}").services
    assert (whole.tensor_parallel, whole.pipeline_parallel) == sizes


def test_a_folder_for_compiled_code_is_mounted_and_named_to_the_engine() -> None:
    for node in nodes(plan("h100x2.ini", "-e", "engine_cache_dir=/data/cache")):
        assert "/data/cache:/data/cache" in node.container.volumes
        assert node.container.environment["TORCHINDUCTOR_CACHE_DIR"] == "/data/cache/inductor"
