"""What the ranks of SGLang have logged about their load and their memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line
from pydantic import BaseModel, ConfigDict

_RANK = re.compile(r"^\[[-\d]+ [:\d]+((?: [A-Z]+\d+)+)\]")
_REPORT = re.compile(r"Decode batch.*#running-req: (\d+).*?token usage: (\d+(?:\.\d*)?).*#queue-req: (\d+)")
_RETRACTION = re.compile(r"KV cache pool is full\. Retract|Decode out of memory happened")
_PREFILL_OOM = re.compile(r"Prefill out of memory\. Try")
_DECODE_OOM = re.compile(r"Decode out of memory\. Try")
_DEVICE_OOM = re.compile(r"CUDA out of memory|OutOfMemoryError: ")
_PHASE = re.compile(r"File \".*, in \w*?(extend|prefill|decode)")
_CAPTURE = re.compile(r"File \".*, in \w*(capture|graph)")
_SIZES = re.compile(r"max_total_num_tokens=\d+, chunked_prefill_size=(-?\d+),.* max_running_requests=(\d+)")
# Reports of decoding that count as the present; one comes every 40 steps.
RECENT = 20
_TRACEBACK_LINES = 120
_FULL = 0.9


class Past(BaseModel):
    """Of the logs. `waits` of the `recent` reports have a queue beside free KV cache.

    `device_oom`: the device's memory was used up, not the KV cache's. Sizes are None where no line has them.
    """

    model_config = ConfigDict(frozen=True)

    reports: int = 0
    recent: int = 0
    waits: int = 0
    most_running: int = 0
    retractions: int = 0
    prefill_oom: bool = False
    decode_oom: bool = False
    device_oom: bool = False
    chunked_prefill: int | None = None
    max_running: int | None = None


def read_past(logs: Sequence[Sequence[Line]]) -> Past:
    """What the ranks have logged, each node's log in the order of its ranks."""
    reports = [found for log in logs for line in log if (found := _REPORT.search(line.text))]
    recent = reports[-RECENT:]
    phases = [phase for log in logs for phase in _device_oom(log)]
    sizes = [found for log in logs for line in log if (found := _SIZES.search(line.text))]
    return Past(
        reports=_most(logs, _REPORT),
        recent=len(recent),
        waits=sum(float(one[2]) < _FULL and int(one[3]) > 0 for one in recent),
        most_running=max((int(one[1]) for one in reports), default=0),
        retractions=_most(logs, _RETRACTION),
        prefill_oom=_most(logs, _PREFILL_OOM) > 0 or bool({"extend", "prefill"} & set(phases)),
        decode_oom=_most(logs, _DECODE_OOM) > 0 or "decode" in phases,
        device_oom=bool(phases),
        chunked_prefill=int(sizes[-1][1]) if sizes else None,
        max_running=int(sizes[-1][2]) if sizes else None,
    )


def _most(logs: Sequence[Sequence[Line]], pattern: re.Pattern[str]) -> int:
    """How often the rank wrote it that wrote it most, for the ranks of a group all write the same."""
    ranks = Counter(
        (number, found[1] if (found := _RANK.match(line.text)) else "")
        for number, log in enumerate(logs)
        for line in log
        if pattern.search(line.text)
    )
    return max(ranks.values(), default=0)


def _device_oom(log: Sequence[Line]) -> list[str]:
    """What was going on (extend, prefill, decode or "") at each line with it, by the traceback above."""
    found = []
    for number, line in enumerate(log):
        if _DEVICE_OOM.search(line.text):
            above = log[max(0, number - _TRACEBACK_LINES) : number]
            begin = max((i for i, one in enumerate(above) if "Traceback (most" in one.text), default=0)
            frames = [one.text for one in above[begin:]]
            phases = [seen[1] for frame in frames if (seen := _PHASE.search(frame))]
            starting = any(_CAPTURE.search(frame) for frame in frames)
            found.append(phases[-1] if phases and not starting else "")
    return found
