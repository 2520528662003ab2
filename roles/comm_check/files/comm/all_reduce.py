"""All-reduces of growing sizes over one back-end: every sum is checked, then the time is taken."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from refused import Refused

if TYPE_CHECKING:
    from rank import Rank

STEP = 8
SIZES = [STEP**power for power in range(1, 11)]  # 8 B to 1 GiB
FLOAT = 4  # bytes
# Whole numbers up to 251 × the sum of all ranks are exact in float32 for up to 365 ranks.
PATTERN = 251
MEASURE_S = 0.5  # for each size, but at least one all-reduce and at most MANY
MANY = 50
GRAPH_BYTES = 2**20
BLOCK = 2**16  # lines of the pattern
# The memory limit, in cgroups v1 (with those above it) and v2.
LIMITS = (
    (Path("/sys/fs/cgroup/memory/memory.stat"), r"hierarchical_memory_limit (\d+)"),
    (Path("/sys/fs/cgroup/memory.max"), r"^(\d+)"),
)
# Less than this free on a GPU is no room for a context, NCCL's buffers and the tensor.
GPU_ROOM = 4 * 2**30


def measure(rank: Rank, backend: str, run: dict[str, Any]) -> None:
    """Fill `run` with a row a size; `stopped` says why it ended before the last one."""
    device = torch.device("cuda", rank.local) if backend == "nccl" else torch.device("cpu")
    room = _room(rank, device)
    begin = time.monotonic()
    for number, size in enumerate(SIZES):
        text = _text(size)
        rank.progress(number, len(SIZES), f"{backend} {text}")
        if 2 * size > room:
            run["stopped"] = f"{text} needs {_text(2 * size)} of free memory for every rank"
            return
        left = rank.options["seconds"] - _agree(time.monotonic() - begin, device)
        # One all-reduce to check, one to time.
        expected = 2 * STEP * run["rows"][-1]["seconds"] if run["rows"] else 0.0
        if expected > left:
            run["stopped"] = (
                f"{text} would take about {expected:.0f} s, {max(left, 0):.0f} s of the budget are left"
            )
            return
        run["rows"].append(_row(rank, size, device, _all_reduce))
    if backend == "nccl":
        rank.progress(len(SIZES), len(SIZES), "nccl in a CUDA graph")
        run["rows"].append({**_graph_row(rank, device), "graph": True})


def _row(
    rank: Rank, size: int, device: torch.device, reduce: Callable[[torch.Tensor], None]
) -> dict[str, Any]:
    tensor = torch.empty(size // FLOAT, dtype=torch.float32, device=device)
    return _timed(rank, tensor, lambda: reduce(tensor))


def _graph_row(rank: Rank, device: torch.device) -> dict[str, Any]:
    """The same all-reduce captured once and replayed, as engines run their decode steps."""
    tensor = torch.zeros(GRAPH_BYTES // FLOAT, dtype=torch.float32, device=device)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        dist.all_reduce(tensor)  # connections are made outside the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # NCCL's own threads may call CUDA meanwhile.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        dist.all_reduce(tensor)
    return _timed(rank, tensor, graph.replay)


def _timed(rank: Rank, tensor: torch.Tensor, reduce: Callable[[], None]) -> dict[str, Any]:
    """One all-reduce of known numbers, checked; then as many as the time allows, of zeros."""
    _fill(tensor, rank.rank + 1)
    first = _agree(_seconds(reduce, 1, tensor.device), tensor.device)
    wrong = _agree(float(_wrong(tensor, rank.world * (rank.world + 1) // 2)), tensor.device)
    tensor.zero_()
    count = max(1, min(MANY, int(MEASURE_S / first)))
    seconds = _agree(_seconds(reduce, count, tensor.device) / count, tensor.device)
    size = tensor.numel() * FLOAT
    return {
        "bytes": size,
        "seconds": seconds,
        "algbw": size / seconds,
        "busbw": size / seconds * 2 * (rank.world - 1) / rank.world,
        "wrong": int(wrong),
        "graph": False,
    }


def _seconds(reduce: Callable[[], None], count: int, device: torch.device) -> float:
    _finish(device)
    begin = time.monotonic()
    for _round in range(count):
        reduce()
    _finish(device)
    return time.monotonic() - begin


def _all_reduce(tensor: torch.Tensor) -> None:
    dist.all_reduce(tensor)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _agree(value: float, device: torch.device) -> float:
    """The largest of all ranks, so that they decide alike."""
    tensor = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return float(tensor.item())


def _pattern(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The numbers 1 to PATTERN, and the tensor as whole lines of as many and a rest."""
    whole = tensor.numel() // PATTERN * PATTERN
    numbers = torch.arange(1, PATTERN + 1, dtype=tensor.dtype, device=tensor.device)
    return numbers, tensor[:whole].view(-1, PATTERN), tensor[whole:]


def _fill(tensor: torch.Tensor, factor: int) -> None:
    numbers, lines, rest = _pattern(tensor)
    lines.copy_(numbers * factor)
    rest.copy_(numbers[: rest.numel()] * factor)


def _wrong(tensor: torch.Tensor, factor: int) -> int:
    """How many numbers are not what the ranks' sum must be."""
    numbers, lines, rest = _pattern(tensor)
    bad = int(torch.count_nonzero(rest != numbers[: rest.numel()] * factor))
    # A mask of the whole tensor would take as much memory again.
    return bad + sum(int(torch.count_nonzero(part != numbers * factor)) for part in lines.split(BLOCK))


def _room(rank: Rank, device: torch.device) -> float:
    """Free bytes for each rank, of the rank that has least."""
    if device.type == "cuda":
        free = float(torch.cuda.mem_get_info(device)[0])
    else:
        free = _free_memory() / rank.options["ranks_per_node"]
    least = -_agree(-free, device)
    if device.type == "cuda" and least < GPU_ROOM:
        raise Refused(
            f"a GPU has {_text(int(least))} free, and {_text(GPU_ROOM)} are needed",
            "The engine's ranks run there, or others: deploy down, or test with --backend gloo alone.",
        )
    return least


def _free_memory() -> float:
    """Bytes; half of a limit that holds for this container, for others may live under the same one."""
    found = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    known = [float(found[1]) * 1024] if found else []
    for name, pattern in LIMITS:
        if name.exists() and (found := re.search(pattern, name.read_text())):
            known.append(float(found[1]) / 2)
    return min(known)


def _text(size: int) -> str:
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 2**power:
            return f"{size / 2**power:.0f} {unit}"
    return f"{size} B"
