"""Live figures of the head, and what the ranks have logged → what to change for throughput.

The rules are those of SGLang's tuning guide ("Hyperparameter Tuning"), with its numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from headfirst.diagnose.figures import Live, Past, read_live, read_past
from headfirst.diagnose.types import Answer, Node
from headfirst.errors import NotReadyError

# Above this the KV cache is well used; below it a queue should be let in.
FULL = 0.9
QUEUE_RANGE = (50, 500)
# More retractions than one in this many reports of decoding are "frequent".
RARE = 20
EAGER, CAREFUL = 0.3, 1.3
CHUNKS = (4096, 2048)


class Advice(BaseModel):
    """One change: `setting` of engine_args, what to do with it, and the figures that say so."""

    model_config = ConfigDict(frozen=True)

    setting: str
    change: str
    why: str


class Tuning(BaseModel):
    """Figures and what follows from them. `live` is None where the engine does not answer."""

    model_config = ConfigDict(frozen=True)

    live: Live | None
    past: Past
    load: str
    arguments: dict[str, str]
    advice: list[Advice]


def tune(nodes: Sequence[Node]) -> Tuning:
    """Advice for a service. NotReadyError where it gives no figures, and has not run out of memory either."""
    head = nodes[0]
    there = [node.container for node in nodes if node.container]
    past = read_past([(*container.earlier, *container.log) for container in there])
    answer = head.metrics or Answer(0, head.problem or "the host was not asked")
    live = read_live(answer.text) if answer.status == 200 else None
    if live is None and not (past.prefill_oom or past.decode_oom or past.device_oom):
        raise _no_figures(head, answer)
    given = _given(head.container.argv if head.container else ())
    return Tuning(
        live=live, past=past, load=_load(live, past), arguments=given, advice=advise(live, past, given)
    )


def advise(live: Live | None, past: Past, given: Mapping[str, str]) -> list[Advice]:
    """What the guide says to these figures; `given` are the flags that the engine was started with."""
    return [*_for_memory(past, given), *_for_scheduling(live, past, given)]


def _for_memory(past: Past, given: Mapping[str, str]) -> list[Advice]:
    found = []
    chunk = past.chunked_prefill or 0
    smaller = [str(size) for size in CHUNKS if chunk <= 0 or size < chunk]
    if past.prefill_oom and smaller:
        now = f" (now {chunk})" if chunk > 0 else ""
        change, why = f"set it to {' or '.join(smaller)}{now}", "it ran out of memory in prefill"
        found.append(Advice(setting="--chunked-prefill-size", change=change, why=why))
    if past.decode_oom:
        most = f" below {past.most_running}, the most that ran at a time" if past.most_running else ""
        why = "it ran out of memory while it generated"
        found.append(Advice(setting="--max-running-requests", change=f"lower it{most}", why=why))
    if past.device_oom:  # the other kind is the KV cache's own, which a smaller fraction would shrink
        now = f" (now {given['--mem-fraction-static']})" if "--mem-fraction-static" in given else ""
        change = f"lower it by 0.05{now}, which helps prefill and decoding"
        why = "the memory outside weights and KV cache was used up"
        found.append(Advice(setting="--mem-fraction-static", change=change, why=why))
    return found


def _for_scheduling(live: Live | None, past: Past, given: Mapping[str, str]) -> list[Advice]:
    conservativeness = float(given.get("--schedule-conservativeness", 1.0))
    if past.retractions > max(1, past.reports / RARE):
        wanted = CAREFUL if conservativeness < CAREFUL else conservativeness + 0.3
        why = (
            f"{past.retractions} retractions in {past.reports} reports of decoding: the KV cache is too full"
        )
        return [_conservativeness("raise", wanted, conservativeness, why)]
    if live is None or not live.queued:
        return []
    found = []
    # One look may fall between two steps; most of the latest reports must say the same.
    if live.token_usage < FULL and past.waits > past.recent / 2:
        why = f"{live.queued:.0f} requests wait although token usage is {live.token_usage:.2f}, below {FULL}"
        if past.max_running and live.running >= past.max_running:
            change = f"raise it above {past.max_running}, as many as run"
            found.append(Advice(setting="--max-running-requests", change=change, why=why))
        elif conservativeness > EAGER:
            found.append(_conservativeness("lower", EAGER, conservativeness, why))
    if live.queued > QUEUE_RANGE[1] and given.get("--schedule-policy") == "lpm":
        why = f"{live.queued:.0f} requests wait, and lpm sorts them all at each step"
        found.append(Advice(setting="--schedule-policy", change="use fcfs (now lpm)", why=why))
    return found


def _conservativeness(way: str, wanted: float, now: float, why: str) -> Advice:
    change = f"{way} it to {wanted:.1f} (now {now:.1f})"
    return Advice(setting="--schedule-conservativeness", change=change, why=why)


def _load(live: Live | None, past: Past) -> str:
    few, many = QUEUE_RANGE
    if live is None:
        return "the engine gives no live figures"
    if not live.queued:
        return "no request waits: more load would be served"
    if not past.reports:
        return "requests wait, and it has not reported of decoding yet: ask again in a minute"
    if live.queued > many:
        return f"more requests wait than the usual {few} to {many}: another replica would help"
    return "requests wait, as they should under load"


def _no_figures(head: Node, answer: Answer) -> NotReadyError:
    if answer.status in (200, 404):
        what = "the engine gives no metrics: it was started without --enable-metrics"
        hint = (
            "Add --enable-metrics to engine_args in the inventory and run `deploy up`; it restarts the ranks."
        )
        return NotReadyError(what, where=head.host, hint=hint)
    hint = "Run `deploy diagnose` without --tuning."
    said = f"HTTP {answer.status}" if answer.status else answer.text
    return NotReadyError(f"the engine does not answer at /metrics: {said}", where=head.host, hint=hint)


def _given(argv: Sequence[str]) -> dict[str, str]:
    """Flags with their one value, as `--flag value` or `--flag=value`."""
    found = {}
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            found[flag] = value if equals else "" if following.startswith("--") else following
    return {flag: value for flag, value in found.items() if value}
