"""A LAN of network namespaces, a checkpoint to be brought to its nodes, and members of that transfer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from headfirst.node.weights.files import list_files
from lan_members import SHARD, SHARDS, LanMembers
from netns import Lan
from weights_checkpoints import fp8_weight, scales, write_checkpoint


@pytest.fixture(scope="module")
def lan() -> Iterator[Lan]:
    with Lan(4, "100mbit") as lan:
        yield lan


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten shards of 10 MB: nine seconds on a link."""
    folder = tmp_path_factory.mktemp("source")
    rows = SHARD // 2048 // 128 * 128
    shards = {
        f"model-{number:02}.safetensors": {
            f"{number}.weight": fp8_weight(rows, 2048, number),
            f"{number}.weight_scale_inv": scales(rows, 2048, number),
        }
        for number in range(SHARDS)
    }
    write_checkpoint(folder, shards)
    return folder


@pytest.fixture
def size(source: Path) -> int:
    return sum((source / name).stat().st_size for name in list_files(source))


@pytest.fixture
def members(lan: Lan, tmp_path: Path) -> Iterator[LanMembers]:
    members = LanMembers(tmp_path, 4, lan=lan)
    yield members
    for process in members.running.values():
        process.kill()
        process.wait()
