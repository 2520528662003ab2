"""Live figures of the head and its log → what to change for throughput (SGLang's tuning guide)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from headfirst.diagnose.types import Answer, Line, Node
from headfirst.errors import NotReadyError

_SAMPLE = re.compile(r"^sglang:(\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)
_RETRACT = re.compile(r"KV cache pool is full\. Retract|Decode out of memory happened")
_DECODE_BATCH = re.compile(r"Decode batch")
_PREFILL_OOM = re.compile(r"Prefill out of memory")
_DECODE_OOM = re.compile(r"Decode out of memory\.")
_CUDA_OOM = re.compile(r"CUDA out of memory|OutOfMemoryError")
# Of the guide: above this the KV cache is well used, and below this a queue should be let in.
FULL = 0.9
QUEUE_RANGE = (50, 500)
# More retractions than one in this many reports of decoding are "frequent".
RARE = 20


class Figures(BaseModel):
    """What the engine told. Throughput in tokens a second, usage 0..1 of the KV cache, counts in the log."""

    model_config = ConfigDict(frozen=True)

    running: float
    queued: float
    token_usage: float
    gen_throughput: float
    retractions: int
    decode_reports: int
    prefill_oom: int
    decode_oom: int
    cuda_oom: int


class Advice(BaseModel):
    """One change: `setting` of engine_args, what to do with it, and the figures that say so."""

    model_config = ConfigDict(frozen=True)

    setting: str
    change: str
    why: str


class Tuning(BaseModel):
    """Figures and what follows from them."""

    model_config = ConfigDict(frozen=True)

    figures: Figures
    arguments: dict[str, str]
    advice: list[Advice]


def tune(nodes: Sequence[Node]) -> Tuning:
    """Advice for a service that runs. NotReadyError where the head gives no figures."""
    head = nodes[0]
    figures = read(_metrics(head), [node.container.log if node.container else () for node in nodes])
    argv = head.container.argv if head.container else ()
    return Tuning(figures=figures, arguments=_given(argv), advice=advise(figures, _given(argv)))


def read(metrics: str, logs: Sequence[Sequence[Line]]) -> Figures:
    """Figures from the text of /metrics and the ranks' logs; of several schedulers the busiest."""
    values: dict[str, list[float]] = {}
    for name, _labels, value in _SAMPLE.findall(metrics):
        values.setdefault(name, []).append(float(value))

    def count(pattern: re.Pattern[str]) -> int:
        # Every tensor-parallel rank of a node writes the same line: the node that wrote most tells.
        return max((sum(bool(pattern.search(line.text)) for line in log) for log in logs), default=0)

    def top(name: str) -> float:
        return max(values.get(name, [0.0]))

    return Figures(
        running=top("num_running_reqs"),
        queued=top("num_queue_reqs"),
        token_usage=top("token_usage"),
        gen_throughput=top("gen_throughput"),
        retractions=count(_RETRACT),
        decode_reports=count(_DECODE_BATCH),
        prefill_oom=count(_PREFILL_OOM),
        decode_oom=count(_DECODE_OOM),
        cuda_oom=count(_CUDA_OOM),
    )


def advise(figures: Figures, given: Mapping[str, str]) -> list[Advice]:
    """What the guide says to these figures; `given` are the flags that the engine was started with."""
    found = []

    def add(setting: str, change: str, why: str) -> None:
        now = f" (now {given[setting]})" if setting in given else ""
        found.append(Advice(setting=setting, change=change + now, why=why))

    often = figures.retractions > max(1, figures.decode_reports / RARE)
    usage = f"token usage {figures.token_usage:.2f}"
    if figures.prefill_oom:
        why = f"out of memory in prefill, {figures.prefill_oom} times"
        add("--chunked-prefill-size", "lower it to 4096 or 2048", why)
    if figures.decode_oom:
        why = f"out of memory while generating, {figures.decode_oom} times"
        add("--max-running-requests", f"lower it below {max(1, figures.running):.0f}", why)
    if figures.cuda_oom:
        why = f"the GPU ran out of memory, {figures.cuda_oom} times"
        add("--mem-fraction-static", "lower it by 0.05, which helps prefill and decoding", why)
    if often:
        why = f"{figures.retractions} retractions in {figures.decode_reports} reports of decoding"
        add("--schedule-conservativeness", "raise it to 1.3", f"{why}, {usage}")
    elif figures.queued > 0 and figures.token_usage < FULL:
        why = f"{figures.queued:.0f} requests wait although {usage} is below {FULL}"
        add("--schedule-conservativeness", "lower it to 0.3", why)
    if figures.queued > QUEUE_RANGE[1]:
        why = f"{figures.queued:.0f} requests wait; {QUEUE_RANGE[0]} to {QUEUE_RANGE[1]} is the normal range"
        add("--schedule-policy", "fcfs spends less on a long queue than lpm; or add replicas", why)
    return found


def _metrics(head: Node) -> str:
    answer = head.metrics or Answer(0, "the host was not reached")
    if answer.status == 200 and "sglang:" in answer.text:
        return answer.text
    if answer.status in (200, 404):
        what = "the engine gives no metrics: it was started without --enable-metrics"
        hint = (
            "Add --enable-metrics to engine_args in the inventory and run `deploy up`; it restarts the ranks."
        )
        raise NotReadyError(what, where=head.host, hint=hint)
    said = head.problem or answer.text
    hint = "Run `deploy diagnose` without --tuning."
    raise NotReadyError(f"the engine does not answer at /metrics: {said}", where=head.host, hint=hint)


def _given(argv: Sequence[str]) -> dict[str, str]:
    """Flags with their one value, as `--flag value` or `--flag=value`."""
    found = {}
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            found[flag] = value if equals else "" if following.startswith("--") else following
    return {flag: value for flag, value in found.items() if value}
