"""Members that serve some of the layers get, convert and keep only the shards of these."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from fake_hub import MODEL, FakeHub, running
from headfirst.common.errors import NotReadyError
from headfirst.common.safetensors_file import read_shard
from headfirst.node.weights.convert.convert_folder import convert
from headfirst.node.weights.fetch.fetching import FetchRequest
from headfirst.node.weights.files import list_files
from headfirst.node.weights.proof.checkpoint_check import INDEX, read_index
from headfirst.node.weights.proof.verify import verify
from headfirst.node.weights.status import look
from transfers import Members, ended, outcomes
from weights_checkpoints import BF16, Array, bits_equal, fp8_weight, load, reference, scales, write_checkpoint

LAYERS = 6
EMBEDDING, HEAD = "model-1.safetensors", "model-8.safetensors"
SIZE = 512
MB = 1_000_000
RANGES = ["--layers", "0-2", "--layers", "3-5", "--hidden-layers", str(LAYERS)]


def shard(layer: int) -> str:
    return f"model-{layer + 2}.safetensors"


def weight(layer: int) -> str:
    return f"model.layers.{layer}.mlp.up_proj.weight"


def ordered(*, scattered: bool = False) -> dict[str, dict[str, Array]]:
    """One shard a layer, embedding first, head last; `scattered` scales are in the next layer's shard."""
    shards: dict[str, dict[str, Array]] = {EMBEDDING: {"model.embed_tokens.weight": np.zeros((64, 64), BF16)}}
    for layer in range(LAYERS):
        shards[shard(layer)] = {weight(layer): fp8_weight(SIZE, SIZE, layer)}
    shards[HEAD] = {"lm_head.weight": np.ones((64, 64), BF16)}
    for layer in range(LAYERS):
        home = min(layer + 1, LAYERS - 1) if scattered else layer
        shards[shard(home)][f"{weight(layer)}_scale_inv"] = scales(SIZE, SIZE, layer)
    return shards


def shards_of(*layers: int) -> set[str]:
    return {EMBEDDING, HEAD, *map(shard, layers)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "source", ordered())
    return tmp_path / "source"


@contextmanager
def hub_of(source: Path) -> Iterator[FakeHub]:
    with running({name: (source / name).read_bytes() for name in list_files(source)}) as hub:
        yield hub


def command(layers: Sequence[str], *more: str) -> list[str]:
    ranges = [word for text in layers for word in ("--layers", text)]
    return ["@/model", "--model", MODEL, *ranges, "--hidden-layers", str(LAYERS), *more]


def start(
    members: Members, hub: FakeHub, layers: Sequence[str], *more: str
) -> Iterator[subprocess.Popen[str]]:
    for index in range(members.count):
        environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(members.home(index) / "hf")}
        yield members.start(index, command(layers, *more), **environment)


def run(members: Members, hub: FakeHub, layers: Sequence[str], *more: str) -> list[dict[str, object]]:
    for code, errors in outcomes(start(members, hub, layers, *more)):
        assert code == 0, errors
    return [members.result(index) for index in range(members.count)]


def held(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.safetensors")}


def assert_has(folder: Path, source: Path, layers: Sequence[int]) -> None:
    """The folder is whole for these layers, has nothing else, and its index names just that."""
    verify(folder, deep=True)
    assert held(folder) == shards_of(*layers)
    for name in held(folder):
        assert (folder / name).read_bytes() == (source / name).read_bytes()
    whole = read_index(source)
    assert read_index(folder) == {name: home for name, home in whole.items() if home in held(folder)}
    total = json.loads((folder / INDEX).read_text())["metadata"]["total_size"]
    assert total == sum(
        tensor.end - tensor.start
        for name in held(folder)
        for tensor in read_shard(folder / name).tensors.values()
    )


def sizes(source: Path, names: set[str]) -> int:
    return sum((source / name).stat().st_size for name in names)


def answers(folder: Path, layers: range | None) -> bool:
    status = look(FetchRequest("huggingface", MODEL), folder, None, layers)
    return bool(status["answers"] and status["digest"])


def test_each_of_two_members_has_its_own_layers(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 2)
    with hub_of(source) as hub:
        first, second = run(members, hub, ["0-2", "3-5"])
        assert all(hub.sent[name] == (source / name).stat().st_size for name in held(source))
        assert first["received"] == 0
        assert first["whole"] == second["whole"]
        small = sizes(source, set(list_files(source)) - held(source))
        assert second["received"] == sizes(source, shards_of(3, 4, 5)) + small
        assert_has(members.home(0) / "model", source, range(3))
        assert_has(members.home(1) / "model", source, range(3, 6))

        before = hub.sent.total()
        again = run(members, hub, ["0-2", "3-5"])
        assert hub.sent.total() == before
        assert [(result["changed"], result["received"]) for result in again] == [(False, 0)] * 2
    folder = members.home(1) / "model"
    assert answers(folder, range(3, 6))
    assert answers(folder, range(4, 6))
    assert not answers(folder, range(2, 6))
    assert not answers(folder, None)


def test_a_head_that_needs_the_last_layers_and_three_members(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 3)
    with hub_of(source) as hub:
        results = run(members, hub, ["4-5", "0-3", "0-3"])
    assert len({str(result["whole"]) for result in results}) == 1
    for index, layers in enumerate((range(4, 6), range(4), range(4))):
        assert_has(members.home(index) / "model", source, layers)


def test_every_node_fetches_its_own_and_receives_what_both_need(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 2)
    with hub_of(source) as hub:
        hub.rate = MB
        results = run(members, hub, ["0-2", "3-5"], "--fetch", "all")
        assert all(hub.sent[name] == (source / name).stat().st_size for name in held(source))
    for index, layers in enumerate((range(3), range(3, 6))):
        assert_has(members.home(index) / "model", source, layers)
    shared = sizes(source, {EMBEDDING, HEAD, *(set(list_files(source)) - held(source))})
    spare = 2 * (source / shard(0)).stat().st_size  # the last ones go to whoever is free
    assert sum(int(str(result["received"])) for result in results) <= shared + spare


def test_a_changed_division_brings_the_rest(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 2)
    folders = [members.home(index) / "model" for index in range(2)]
    with hub_of(source) as hub:
        run(members, hub, ["0-2", "3-5"])
        fetched = hub.sent.total()
        run(members, hub, ["0-1", "2-5"])
        assert hub.sent.total() == fetched, "the head had it"
        assert_has(folders[0], source, range(2))
        assert_has(folders[1], source, range(2, 6))
        assert int(str(members.result(1)["received"])) == sizes(source, {shard(2)})

        run(members, hub, ["0-3", "4-5"])
        assert hub.sent.total() == fetched, "the other node had it"
        assert_has(folders[0], source, range(4))
        assert_has(folders[1], source, range(4, 6))

        run(members, hub, ["", ""])
        assert hub.sent.total() == fetched
    for folder in folders:
        verify(folder, deep=True)
        assert (folder / INDEX).read_bytes() == (source / INDEX).read_bytes()
        assert held(folder) == held(source)
        assert answers(folder, None)


def test_a_member_that_lost_its_disk_gets_its_own_again(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 2)
    with hub_of(source) as hub:
        run(members, hub, ["0-2", "3-5"])
        hub.sent.clear()
        subprocess.run(["rm", "-r", str(members.home(1))], check=True)
        run(members, hub, ["0-2", "3-5"])
        assert {name for name in hub.sent if name.endswith(".safetensors")} == {shard(3), shard(4), shard(5)}
    assert_has(members.home(0) / "model", source, range(3))
    assert_has(members.home(1) / "model", source, range(3, 6))


@pytest.mark.parametrize("killed", [0, 1])
def test_after_a_kill_the_next_run_continues(source: Path, tmp_path: Path, killed: int) -> None:
    members = Members(tmp_path, 2)
    with hub_of(source) as hub:
        hub.rate = 2 * MB
        with ended(start(members, hub, ["0-2", "3-5"])) as processes:
            while hub.sent.total() < sizes(source, held(source)) // 2:
                assert processes[killed].poll() is None
            processes[killed].kill()
        run(members, hub, ["0-2", "3-5"])
        assert hub.sent.total() < 2 * sizes(source, held(source))
    assert_has(members.home(0) / "model", source, range(3))
    assert_has(members.home(1) / "model", source, range(3, 6))


@pytest.mark.parametrize("scattered", [False, True])
def test_only_the_own_layers_are_converted(tmp_path: Path, scattered: bool) -> None:
    shards = ordered(scattered=scattered)
    source = tmp_path / "source"
    write_checkpoint(source, shards)
    members = Members(tmp_path, 2)
    with hub_of(source) as hub:
        first, second = run(members, hub, ["0-2", "3-5"], "--convert-to", "@/bf16")
        assert first["whole"] == second["whole"] != first["digest"]
        for index, layers in enumerate((range(3), range(3, 6))):
            folder = members.home(index) / "bf16"
            verify(folder, deep=True)
            assert held(folder) == shards_of(*layers)
            assert not held(members.home(index) / "model")
            assert set(read_index(folder)) >= {weight(layer) for layer in layers}
            for layer in layers:
                scale = scales(SIZE, SIZE, layer)
                theirs = reference(shards[shard(layer)][weight(layer)], scale)  # type: ignore[arg-type]
                assert bits_equal(load(folder / shard(layer))[weight(layer)].view(np.uint16), theirs)
        fetched = hub.sent.total()
        run(members, hub, ["0-2", "3-5"], "--convert-to", "@/bf16")
        assert hub.sent.total() == fetched, "all is converted"
        run(members, hub, ["0-1", "2-5"], "--convert-to", "@/bf16")
        assert held(members.home(0) / "bf16") == shards_of(0, 1)
        assert held(members.home(1) / "bf16") == shards_of(2, 3, 4, 5)
        again = 1 + scattered  # the shard of the layer that moved, and the one with its scales
        assert hub.sent.total() - fetched < (again + 0.5) * (source / shard(1)).stat().st_size
        results = run(members, hub, ["", ""], "--convert-to", "@/bf16")
    whole, _ = convert(source, tmp_path / "whole")
    assert [result["digest"] for result in results] == [whole.digest] * 2


def test_a_whole_converted_copy_is_passed_on_in_part(source: Path, tmp_path: Path) -> None:
    Members(tmp_path, 1).run("@/fp8", "--model", str(source), "--from", "path", "--convert-to", "@/bf16")
    members = Members(tmp_path, 2)
    before = {name: (members.home(0) / "bf16" / name).read_bytes() for name in held(source)}
    first, second = members.run("@/bf16", *RANGES)
    assert first["whole"] == second["whole"] != first["digest"]
    assert held(members.home(0) / "bf16") == held(source)
    assert_has(members.home(1) / "bf16", members.home(0) / "bf16", range(3, 6))
    assert all((members.home(1) / "bf16" / name).read_bytes() == before[name] for name in shards_of(3, 4, 5))


def test_a_whole_copy_is_passed_on_in_part_and_stays_whole(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 2)
    alone = Members(tmp_path, 1)
    alone.run("@/model", "--model", str(source), "--from", "path")
    first, second = members.run("@/model", *RANGES)
    assert held(members.home(0) / "model") == held(source)
    assert first["whole"] == second["whole"] == first["digest"]
    assert_has(members.home(1) / "model", source, range(3, 6))


def test_a_part_is_not_passed_on_as_a_whole(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 2)
    with hub_of(source) as hub:
        run(members, hub, ["0-2", "3-5"])
    [(code, errors)] = outcomes(iter([Members(tmp_path, 1).start(0, ["@/model"])]))
    assert code == 3
    assert "layers 0-2 only" in errors
    assert_has(members.home(0) / "model", source, range(3))


def test_a_head_that_serves_the_models_own_folder_converts_its_layers(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 2)
    before = {name: (source / name).read_bytes() for name in list_files(source)}
    asked = ["--model", str(source), "--from", "path", *RANGES, "--convert-to", "@/bf16"]
    folders = [str(source), "@/model"]
    for code, errors in outcomes(members.start(at, [folders[at], *asked]) for at in range(2)):
        assert code == 0, errors
    assert {name: (source / name).read_bytes() for name in before} == before
    request = FetchRequest("path", str(source))
    for index, layers in enumerate((range(3), range(3, 6))):
        folder = members.home(index) / "bf16"
        verify(folder, deep=True)
        assert held(folder) == shards_of(*layers)
        status = look(request, folder, source, layers)
        assert status["answers"]
        assert not status["is_whole"]


def test_a_spoilt_shard_of_a_part_is_converted_again(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 2)
    folder = members.home(1) / "bf16"
    with hub_of(source) as hub:
        run(members, hub, ["0-2", "3-5"], "--convert-to", "@/bf16")
        good = (folder / shard(4)).read_bytes()
        times = (folder / shard(4)).stat()
        (folder / shard(4)).write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        os.utime(folder / shard(4), ns=(times.st_atime_ns, times.st_mtime_ns))
        with pytest.raises(NotReadyError, match=shard(4)):
            verify(folder, deep=True)
        status = look(FetchRequest("huggingface", MODEL), folder, members.home(1) / "model", range(3, 6))
        assert status["digest"] == ""
        hub.sent.clear()
        run(members, hub, ["0-2", "3-5"], "--convert-to", "@/bf16")
        assert {name for name in hub.sent if name.endswith(".safetensors")} == {shard(4)}
    assert (folder / shard(4)).read_bytes() == good
