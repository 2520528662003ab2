"""What conversion takes of memory and disk, and what it does where the disk is odd, or full."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xxhash
from headfirst.common.errors import NotReadyError
from headfirst.node.weights.convert.convert_folder import convert
from headfirst.node.weights.convert.shard_writer import ShardWriter
from weights_checkpoints import load, two_shards, write_checkpoint


def refuse_direct_open(path: str, flags: int, mode: int = 0o777) -> int:
    """As tmpfs of older kernels does."""
    if flags & os.O_DIRECT:
        raise OSError(errno.EINVAL, "Invalid argument")
    return OPEN(path, flags, mode)


def refuse_direct_write(file: int, data: bytes, offset: int) -> int:
    """As a filesystem does that wants writes aligned to more than a page."""
    if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT:
        raise OSError(errno.EINVAL, "Invalid argument")
    return PWRITE(file, data, offset)


OPEN, PWRITE = os.open, os.pwrite
REFUSALS = {"open": refuse_direct_open, "pwrite": refuse_direct_write}


@pytest.mark.parametrize("call", REFUSALS)
def test_where_direct_writes_are_refused_the_bytes_are_the_same(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "fp8", two_shards())
    first, _ = convert(tmp_path / "fp8", tmp_path / "direct")
    monkeypatch.setattr(f"headfirst.node.weights.convert.shard_writer.os.{call}", REFUSALS[call])
    second, _ = convert(tmp_path / "fp8", tmp_path / "through_cache")
    assert first == second


@pytest.mark.parametrize("call", ["posix_fallocate", "pwrite"])
def test_a_disk_that_fills_leaves_no_part_and_the_next_run_goes_on(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_checkpoint(tmp_path / "fp8", two_shards())
    with monkeypatch.context() as patch:
        patch.setattr(f"headfirst.node.weights.convert.shard_writer.os.{call}", full)
        with pytest.raises(OSError, match="No space left"):
            convert(tmp_path / "fp8", tmp_path / "bf16")
    assert [path.name for path in (tmp_path / "bf16").iterdir()] == [".headfirst"]
    after, _ = convert(tmp_path / "fp8", tmp_path / "bf16")
    assert convert(tmp_path / "fp8", tmp_path / "whole")[0] == after


def test_a_filesystem_that_cannot_reserve_space_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_arguments: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr("headfirst.node.weights.convert.shard_writer.os.posix_fallocate", unsupported)
    write_checkpoint(tmp_path / "fp8", two_shards())
    convert(tmp_path / "fp8", tmp_path / "bf16")
    assert load(next((tmp_path / "bf16").glob("*.safetensors")))


@pytest.mark.parametrize("sizes", [[1], [4096], [4095, 2], [5000, 5000, 1], [8192, 0, 3]])
def test_the_writer_writes_what_it_is_given(sizes: list[int], tmp_path: Path) -> None:
    data = np.random.default_rng(0).bytes(sum(sizes))
    with ShardWriter(tmp_path / "file", len(data), max(sizes)) as out:
        start = 0
        for size in sizes:
            out.free(size)[:] = data[start : start + size]
            out.add(size)
            start += size
        digest = out.finish()
    assert (tmp_path / "file").read_bytes() == data
    assert digest == xxhash.xxh3_128_hexdigest(data)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_no_space_is_said_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path / "fp8", two_shards())
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("headfirst.node.weights.files.shutil.disk_usage", lambda _path: usage)
    with pytest.raises(NotReadyError, match="no space to convert to BF16: it needs"):
        convert(tmp_path / "fp8", tmp_path / "bf16")
    assert not list((tmp_path / "bf16").glob("*.safetensors"))


MEASURE = """
import resource, sys
from headfirst.node.weights.cli import main
resource.setrlimit(resource.RLIMIT_DATA, (512 << 20, 512 << 20))
main(["convert", sys.argv[1], sys.argv[2], "--threads", "8"])
# Not ru_maxrss, which a process inherits from the one that started it.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) << 10)
"""


def test_memory_is_bounded_whatever_the_size_of_the_shard(tmp_path: Path) -> None:
    """A tensor of 600 MB, mostly a hole in the file, in a process that gets no more than 512 MiB."""
    rows, columns = 36_864, 16_384
    header = (
        f'{{"a.weight":{{"dtype":"F8_E4M3","shape":[{rows},{columns}],"data_offsets":[0,{rows * columns}]}},'
        f'"a.weight_scale_inv":{{"dtype":"F32","shape":[{rows // 128},{columns // 128}],'
        f'"data_offsets":[{rows * columns},{rows * columns + rows * columns // 4096}]}}}}'
    ).encode()
    write_checkpoint(tmp_path / "fp8", {})
    (tmp_path / "fp8" / "model.safetensors.index.json").unlink()
    scale = np.full((rows // 128, columns // 128), 0.5, np.float32)
    with (tmp_path / "fp8" / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + b"\x38" * columns)
        file.seek(8 + len(header) + rows * columns)
        file.write(scale.tobytes())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "fp8"), str(tmp_path / "bf16")],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < 512 << 20
    with (tmp_path / "bf16" / "model.safetensors").open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        file.seek(8 + length)
        assert file.read(2 * columns) == b"\x00\x3f" * columns  # 1.0 times 0.5
    (tmp_path / "bf16" / "model.safetensors").unlink()
