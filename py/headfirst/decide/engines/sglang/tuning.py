"""Live figures and what the ranks have logged → what to change for throughput.

The rules are those of SGLang's tuning guide ("Hyperparameter Tuning"), with its numbers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line

from headfirst.decide.diagnose.types import Advice, Live, NodeFacts, Tuning
from headfirst.decide.frozen import Tolerant

# Above this the KV cache is well used; below it a queue should be let in.
FULL = 0.9
QUEUE_RANGE = (50, 500)
# More retractions than one in this many reports of decoding are "frequent".
RARE = 20
EAGER, CAREFUL = 0.3, 1.3
CHUNKS = (4096, 2048)
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


class Past(Tolerant):
    """Of the logs. `waits` of the `recent` reports have a queue beside free KV cache.

    `device_oom`: the device's memory was used up, not the KV cache's. Sizes are None where no line has them.
    """

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


def tune(nodes: Sequence[NodeFacts], live: Live | None, flags: Mapping[str, str]) -> Tuning | None:
    """Advice for a service; None where there are no figures, and it has not run out of memory either."""
    there = [node.container for node in nodes if node.container]
    past = read_past([(*container.earlier, *container.log) for container in there])
    if live is None and not (past.prefill_oom or past.decode_oom or past.device_oom):
        return None
    return Tuning(
        engine="SGLang",
        live=live,
        past=past.model_dump(),
        seen=f"{past.reports} reports of decoding in the log, {past.retractions} retractions",
        load=_load(live, past),
        arguments=dict(flags),
        advice=advise(live, past, flags),
    )


def advise(live: Live | None, past: Past, flags: Mapping[str, str]) -> list[Advice]:
    """The advice of the guide for these figures; `flags` are the flags that the engine was started with."""
    return [*_for_memory(past, flags), *_for_scheduling(live, past, flags)]


def _for_memory(past: Past, flags: Mapping[str, str]) -> Iterator[Advice]:
    chunk = past.chunked_prefill or 0
    smaller = [str(size) for size in CHUNKS if chunk <= 0 or size < chunk]
    if past.prefill_oom and smaller:
        now = f" (now {chunk})" if chunk > 0 else ""
        change, why = f"set it to {' or '.join(smaller)}{now}", "it ran out of memory in prefill"
        yield Advice(setting="--chunked-prefill-size", change=change, why=why, values=smaller)
    if past.decode_oom:
        most = f" below {past.most_running}, the most that ran at a time" if past.most_running else ""
        why = "it ran out of memory while it generated"
        lower = [str(past.most_running * 3 // 4)] if past.most_running > 1 else []
        yield Advice(setting="--max-running-requests", change=f"lower it{most}", why=why, values=lower)
    if past.device_oom:  # the other kind is the KV cache's own, which a smaller fraction would shrink
        now = f" (now {flags['--mem-fraction-static']})" if "--mem-fraction-static" in flags else ""
        change = f"lower it by 0.05{now}, which helps prefill and decoding"
        why = "the memory outside weights and KV cache was used up"
        less = [f"{float(flags['--mem-fraction-static']) - 0.05:.2f}"] if now else []
        yield Advice(setting="--mem-fraction-static", change=change, why=why, values=less)


def _for_scheduling(live: Live | None, past: Past, flags: Mapping[str, str]) -> Iterator[Advice]:
    conservativeness = float(flags.get("--schedule-conservativeness", 1.0))
    if past.retractions > max(1, past.reports / RARE):
        target = CAREFUL if conservativeness < CAREFUL else conservativeness + 0.3
        why = (
            f"{past.retractions} retractions in {past.reports} reports of decoding: the KV cache is too full"
        )
        yield _conservativeness("raise", target, conservativeness, why)
        return
    if live is None or not live.queued:
        return
    # One reading may fall between two steps; most of the latest reports must agree.
    if live.token_usage < FULL and past.waits > past.recent / 2:
        why = f"{live.queued:.0f} requests wait although token usage is {live.token_usage:.2f}, below {FULL}"
        if past.max_running and live.running >= past.max_running:
            change = f"raise it above {past.max_running}, as many as run"
            more = str(past.max_running * 2)
            yield Advice(setting="--max-running-requests", change=change, why=why, values=[more])
        elif conservativeness > EAGER:
            yield _conservativeness("lower", EAGER, conservativeness, why)
    if live.queued > QUEUE_RANGE[1] and flags.get("--schedule-policy") == "lpm":
        why = f"{live.queued:.0f} requests wait, and lpm sorts them all at each step"
        change = "use fcfs (now lpm)"
        yield Advice(setting="--schedule-policy", change=change, why=why, values=["fcfs"])


def _conservativeness(way: str, target: float, now: float, why: str) -> Advice:
    change = f"{way} it to {target:.1f} (now {now:.1f})"
    return Advice(setting="--schedule-conservativeness", change=change, why=why, values=[f"{target:.1f}"])


def _load(live: Live | None, past: Past) -> str:
    few, many = QUEUE_RANGE
    if live is None:
        return "the engine publishes no live metrics"
    if not live.queued:
        return "no request waits: more load would be served"
    if not past.reports:
        return "requests wait, and it has not reported decoding yet: run the command again in a minute"
    if live.queued > many:
        return f"more requests wait than the usual {few} to {many}: another replica would help"
    return "requests wait, as they should under load"


def read_past(logs: Sequence[Sequence[Line]]) -> Past:
    """What the ranks have logged, each node's log in the order of its ranks."""
    reports = [match for log in logs for line in log if (match := _REPORT.search(line.text))]
    recent = reports[-RECENT:]
    phases = [phase for log in logs for phase in _device_oom(log)]
    sizes = [match for log in logs for line in log if (match := _SIZES.search(line.text))]
    return Past(
        reports=_most(logs, _REPORT),
        recent=len(recent),
        waits=sum(float(report[2]) < FULL and int(report[3]) > 0 for report in recent),
        most_running=max((int(report[1]) for report in reports), default=0),
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
        (number, match[1] if (match := _RANK.match(line.text)) else "")
        for number, log in enumerate(logs)
        for line in log
        if pattern.search(line.text)
    )
    return max(ranks.values(), default=0)


def _device_oom(log: Sequence[Line]) -> list[str]:
    """What was going on (extend, prefill, decode or "") at each line with it, by the traceback above."""
    oom_phases = []
    for number, line in enumerate(log):
        if _DEVICE_OOM.search(line.text):
            above = [before.text for before in log[max(0, number - _TRACEBACK_LINES) : number]]
            begin = max((i for i, text in enumerate(above) if "Traceback (most" in text), default=0)
            frames = above[begin:]
            phases = [match[1] for frame in frames if (match := _PHASE.search(frame))]
            starting = any(_CAPTURE.search(frame) for frame in frames)
            oom_phases.append(phases[-1] if phases and not starting else "")
    return oom_phases
