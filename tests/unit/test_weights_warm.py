"""What is read into the page cache: all of it, what fits, or nothing; the kernel is asked what is there."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
from pathlib import Path

import pytest
from headfirst.node.weights.cli import main
from headfirst.node.weights.warm import available_memory, choose

MIB = 1 << 20
SIZES = {"model-1.safetensors": 24 * MIB, "model-2.safetensors": 24 * MIB, "sub/config.json": 100}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    for name, size in SIZES.items():
        path = tmp_path / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached(tmp_path / "model" / "model-1.safetensors"):
        pytest.skip("the pages of this file system cannot be evicted")
    return tmp_path / "model"


def cached(path: Path) -> int:
    """Bytes of a file in the page cache, by mincore(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        pages = ctypes.create_string_buffer(-(-len(mapped) // mmap.PAGESIZE))
        start = ctypes.c_char.from_buffer(mapped)
        assert libc.mincore(ctypes.addressof(start), len(mapped), pages) == 0
        del start
        return sum(page & 1 for page in pages.raw) * mmap.PAGESIZE


def warmed(model: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, int]:
    result = model.parent / "result.json"
    monkeypatch.setenv("HEADFIRST_RESULT_FILE", str(result))
    monkeypatch.setenv("HEADFIRST_PROGRESS_FILE", str(model.parent / "progress.json"))
    main(["warm", str(model), *arguments])
    return dict(json.loads(result.read_text()))


def test_all_files_are_in_the_page_cache_afterwards(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = warmed(model, monkeypatch)
    assert result["warmed"] == result["size"] == sum(SIZES.values())
    assert cached(model / "model-1.safetensors") == SIZES["model-1.safetensors"]
    assert cached(model / "model-2.safetensors") == SIZES["model-2.safetensors"]
    progress = json.loads((model.parent / "progress.json").read_text())
    assert progress["done"] == progress["total"] == sum(SIZES.values())


def test_a_limit_takes_the_first_files_first(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert warmed(model, monkeypatch, "--limit", str(32 * MIB))["warmed"] == 32 * MIB
    assert cached(model / "model-1.safetensors") == SIZES["model-1.safetensors"]
    assert 8 * MIB <= cached(model / "model-2.safetensors") < SIZES["model-2.safetensors"]


@pytest.mark.parametrize("arguments", [["--whole", "--limit", str(32 * MIB)], ["--reserve", str(1 << 60)]])
def test_nothing_is_read_where_there_is_no_room(
    model: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    assert warmed(model, monkeypatch, *arguments)["warmed"] == 0
    assert cached(model / "model-1.safetensors") == 0


def test_never_more_than_fits_is_chosen(model: Path) -> None:
    for room in (0, 1, 24 * MIB, 24 * MIB + 1, 1 << 40):
        chosen = choose(model, room, whole=False)
        assert chosen.size == min(room, chosen.total)


def test_memory_is_what_the_kernel_calls_available(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable:   60 kB\n")
    assert available_memory(tmp_path / "meminfo") == 60 * 1024
