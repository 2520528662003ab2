"""FP8 → BF16, GB of FP8 per CPU-second: the converter, the reference algorithm, the memory limit, in one run.

Usage: python benchmarks/convert.py [--gib 1] [--shards 4] [--rounds 3] [--folder DIR]

The reference is what DeepSeek's fp8_cast_bf16.py does, ported to the CPU: load a shard, dequantise each
weight in fp32 with its scales expanded, save_file. It runs in torch where that is installed, else in numpy.
The limit is widening u8 to u16 from memory to memory; "plain" reads the same bytes and writes as many as
the result has, past the page cache as the converter does, in one thread. Each run is a process of its own,
timed after it has imported numba or torch; medians of the rounds are printed, and the files of ours and of
the reference must be the same bytes. Aims: 1.5 GB/s per core, 10 times the reference, 512 MiB.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import mmap
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

BLOCK = 128
STRIP = 1 << 20
ROWS, COLUMNS = 2048, 7168  # an expert of DeepSeek-V3
SCALE = "_scale_inv"


def write_checkpoint(folder: Path, shards: int, tensors: int, rows: int = ROWS) -> int:
    """An FP8 checkpoint of random codes (no NaN: its bits may differ); returns the bytes of its codes.

    `rows` of each tensor, a multiple of 128.
    """
    from headfirst.common.safetensors_file import layout

    rng = np.random.default_rng(1)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        weights = [f"layers.{shard}.experts.{number}.weight" for number in range(tensors)]
        header, spans, _ = layout(
            [(weight, "F8_E4M3", (rows, COLUMNS)) for weight in weights]
            + [(weight + SCALE, "F32", (rows // BLOCK, COLUMNS // BLOCK)) for weight in weights]
        )
        with (folder / name).open("wb") as file:
            file.write(header)
            for tensor in spans:
                if tensor.dtype == "F32":
                    file.write(rng.uniform(1e-4, 1e-3, tensor.shape).astype("<f4").tobytes())
                else:
                    codes = np.frombuffer(rng.bytes(rows * COLUMNS), np.uint8)
                    file.write((codes - ((codes & 0x7F) == 0x7F)).tobytes())
        weight_map |= {tensor.name: name for tensor in spans}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    quantization = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [BLOCK, BLOCK]}
    (folder / "config.json").write_text(json.dumps({"quantization_config": quantization}))
    return shards * tensors * rows * COLUMNS


def ours(source: Path, target: Path, threads: int) -> None:
    """The converter, as `headfirst-weights convert` runs it."""
    from headfirst.node.weights.convert.convert_folder import convert

    convert(source, target, threads)


def plain(source: Path, target: Path, _threads: int) -> None:
    """Read and write what the converter does, and nothing else: 1 MiB of FP8, 2 MiB of whatever."""
    target.mkdir()
    with mmap.mmap(-1, 2 * STRIP) as buffer:
        view = memoryview(buffer)
        for path in sorted(source.glob("*.safetensors")):
            read = os.open(path, os.O_RDONLY)
            write = open_direct(target / path.name)
            os.posix_fallocate(write, 0, 2 * path.stat().st_size)
            at = 0
            while count := os.preadv(read, [view[:STRIP]], at):
                os.pwrite(write, view[: -(-2 * count // mmap.PAGESIZE) * mmap.PAGESIZE], 2 * at)
                at += count
            os.fsync(write)
            os.close(write)
            os.close(read)
        view.release()


def open_direct(path: Path) -> int:
    """For writing past the page cache, where the filesystem can."""
    flags = os.O_WRONLY | os.O_CREAT
    try:
        return os.open(path, flags | os.O_DIRECT, 0o644)
    except OSError:
        return os.open(path, flags, 0o644)


def reference(source: Path, target: Path, threads: int) -> None:
    """The reference algorithm."""
    target.mkdir()
    convert_file = reference_in_torch if find_spec("torch") else reference_in_numpy
    for path in sorted(source.glob("*.safetensors")):
        convert_file(path, target / path.name, threads)


def reference_in_torch(path: Path, target: Path, threads: int) -> None:
    """One shard."""
    import torch
    from safetensors.torch import load_file, save_file

    torch.set_num_threads(threads)
    tensors = load_file(path)
    converted = {}
    for name, weight in tensors.items():
        if not name.endswith(SCALE):
            scale = tensors[name + SCALE].repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
            converted[name] = (weight.to(torch.float32) * scale).to(torch.bfloat16)
    save_file(converted, target, metadata={"format": "pt"})


def reference_in_numpy(path: Path, target: Path, threads: int) -> None:
    """One shard; numpy has no threads for this."""
    import ml_dtypes
    from safetensors import deserialize
    from safetensors.numpy import save_file

    types = {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F32": np.float32}  # safetensors.numpy has no FP8
    tensors = {
        name: np.frombuffer(entry["data"], types[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    }
    converted = {}
    for name, weight in tensors.items():
        if not name.endswith(SCALE):
            scale = tensors[name + SCALE].repeat(BLOCK, 0).repeat(BLOCK, 1)
            converted[name] = (weight.astype(np.float32) * scale).astype(ml_dtypes.bfloat16)
    save_file(converted, target, metadata={"format": "pt"})


def kernel_rate() -> float:
    """GB/s of the kernel alone on one strip, which stays in the cache."""
    from headfirst.node.weights.convert.convert_shard import STRIP
    from headfirst.node.weights.convert.fp8 import dequantise

    rows = STRIP // COLUMNS
    codes = np.random.default_rng(2).integers(0, 256, (rows, COLUMNS), dtype=np.uint8)
    scales = np.full((-(-rows // BLOCK), COLUMNS // BLOCK), 3e-4, np.float32)
    out = np.empty(codes.shape, np.uint16)
    return rate(lambda: dequantise(codes, scales, (BLOCK, BLOCK), out), codes.size, 200)


def limit_rate() -> float:
    """GB/s of widening u8 to u16, from memory to memory."""
    codes = np.ones(256 * 2**20, np.uint8)
    out = np.ones(codes.shape, np.uint16)
    return rate(lambda: np.copyto(out, codes), codes.size, 3)


def rate(work: Callable[[], None], size: int, times: int) -> float:
    """GB per CPU-second of `work` on `size` bytes, after a first call that is not counted."""
    work()
    start = time.process_time()
    for _ in range(times):
        work()
    return size * times / (time.process_time() - start) / 1e9


def work(kind: str, source: Path, target: Path, threads: int) -> None:
    """In a process of its own: convert, then print CPU and wall seconds and the peak of memory as JSON."""
    modules = {
        "ours": ["headfirst.node.weights.convert.fp8"],
        "reference": ["torch", "ml_dtypes"],
        "plain": [],
    }
    for module in modules[kind]:
        if find_spec(module):
            import_module(module)
    before, start = time.process_time(), time.perf_counter()
    {"ours": ours, "plain": plain, "reference": reference}[kind](source, target, threads)
    wall, cpu = time.perf_counter() - start, time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"cpu": cpu, "wall": wall, "peak": peak}))


def measure(kind: str, source: Path, target: Path, threads: int) -> Mapping[str, float]:
    """What `work` prints, with nothing left to be written by the run before."""
    shutil.rmtree(target, ignore_errors=True)
    os.sync()
    command = [sys.executable, __file__, "--work", kind, str(source), str(target), str(threads)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    numbers: Mapping[str, float] = json.loads(output.splitlines()[-1])
    return numbers


def main() -> None:
    """Write the checkpoint, measure, compare, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=1, help="GiB of FP8")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to work; it decides which disk")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        kind, source, target, threads = arguments.work
        return work(kind, Path(source), Path(target), int(threads))
    tensors = max(1, round(arguments.gib * 2**30 / arguments.shards / ROWS / COLUMNS))
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        (folder / "fp8").mkdir()
        size = write_checkpoint(folder / "fp8", arguments.shards, tensors)
        compare(folder, size, arguments.shards, arguments.rounds)
    return None


def compare(folder: Path, size: int, shards: int, rounds: int) -> None:
    """Measure all by turns and print the medians and their ratios."""
    runs = [("plain", 1), ("ours", 1), ("ours", 2), ("reference", 1)]
    found: dict[tuple[str, int], list[Mapping[str, float]]] = {run: [] for run in runs}
    measure("ours", folder / "fp8", folder / "ours", 1)  # compiles the kernel, fills the page cache
    for _ in range(rounds):
        for kind, threads in runs:
            found[kind, threads].append(measure(kind, folder / "fp8", folder / kind, threads))
    names = [path.name for path in (folder / "fp8").glob("*.safetensors")]
    _, different, missing = filecmp.cmpfiles(folder / "ours", folder / "reference", names, shallow=False)
    if different or missing:
        sys.exit(f"ours and the reference differ: {different + missing}")

    def median(run: tuple[str, int], number: str) -> float:
        return statistics.median(measured[number] for measured in found[run])

    per_cpu = {run: size / median(run, "cpu") / 1e9 for run in runs}
    kernel, limit = kernel_rate(), limit_rate()
    library = "torch" if find_spec("torch") else "numpy"
    print(f"{size / 1e9:.2f} GB of FP8 in {shards} shards, {rounds} rounds, reference in {library}")
    print(f"{'':22}{'GB/CPU-s':>10}{'wall GB/s':>11}{'peak MiB':>10}")
    for (kind, threads), rate_ in per_cpu.items():
        wall, peak = median((kind, threads), "wall"), median((kind, threads), "peak")
        label = f"{kind}, {threads} thread{'s' * (threads > 1)}"
        print(f"{label:22}{rate_:10.2f}{size / wall / 1e9:11.2f}{peak / 2**20:10.0f}")
    print(f"{'kernel alone':22}{kernel:10.2f}")
    print(f"{'limit: u8 to u16':22}{limit:10.2f}")
    one, two = median(("ours", 1), "wall"), median(("ours", 2), "wall")
    print(
        f"ours over plain reading and writing, speed of one thread: {median(('plain', 1), 'wall') / one:.2f}"
    )
    print(
        f"ours over the reference {per_cpu['ours', 1] / per_cpu['reference', 1]:.1f}, over the limit "
        f"{per_cpu['ours', 1] / limit:.2f}; kernel over the limit {kernel / limit:.2f}; 1 to 2 threads "
        f"{one / two:.2f} times as fast; the files are the same bytes"
    )


if __name__ == "__main__":
    main()
