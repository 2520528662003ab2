"""How a replica changes to another generation: the steps, their order, and the way back.

A step is done on all of its hosts before the next one begins; every step may be a run's last, and the next
run completes what it left. A rank's state is a mapping with `host` and `rank`; `seen`, what the module
container_generations returned there; and `beside`, the containers that run in the rank's place. A change is
what service_change.py decided. Pure; Python 3.8 or newer, standard library only.
"""

from __future__ import annotations

import typing as t

Ranks = t.Sequence[t.Dict[str, t.Any]]
Change = t.Dict[str, t.Any]
Rank = t.TypeVar("Rank")


class Step(t.NamedTuple):
    """What hosts do at the same time, with the containers of a generation; `back`: after a failure."""

    do: str
    hosts: t.Tuple[str, ...]
    generation: str = ""
    back: bool = False


class StepOutcome(t.NamedTuple):
    """What became of a step: answers by host, why it was not done by host, and hosts that are lost."""

    answers: t.Dict[str, t.Any]
    reasons: t.Dict[str, str]
    lost: t.Collection[str] = ()


class Ended(t.NamedTuple):
    """How a rollout ended, and what runs now.

    `failure` is why it failed, "" where it did not. `stopped`: something had been stopped by then.
    `returned`: the generation that served before was started, which failed for the reason `again` unless that
    is "". `before`: another generation has the name again. `revived`: host, name, and whether it serves, of
    containers that were started again. `stuck`: what could not be done on the way back.
    """

    failure: str = ""
    stopped: bool = False
    returned: bool = False
    again: str = ""
    before: bool = False
    revived: t.Tuple[t.Tuple[str, str, bool], ...] = ()
    stuck: t.Tuple[str, ...] = ()


class WayBack(t.NamedTuple):
    """The way to what ran before.

    `stop`, then `serve`, which is the generation that served; where that fails `stop` again; then `revive`,
    what is not these ranks' alone.
    """

    stop: t.List[Step]
    serve: t.List[Step]
    revive: t.List[Step]


Steps = t.List[Step]
Course = t.Generator[Step, StepOutcome, Ended]
"""Steps one after the other; each is sent what became of it."""


# Steps that a service has only with a supervisor, with proofs, or with data that another image may migrate.
_NEEDS = {
    "pause": "supervisor",
    "drain": "supervisor",
    "route": "supervisor",
    "prove": "proofs",
    "back_up": "backup",
    "restore": "backup",
}


def head_first(ranks: t.Iterable[Rank], number: t.Callable[[Rank], int]) -> t.List[t.Tuple[Rank, ...]]:
    """Ranks in the order in which they stop and start: the head, then the others at the same time.

    Workers may ignore SIGTERM until the head ends them, and connect to the head when they start.
    """
    listed = list(ranks)
    groups = [tuple(rank for rank in listed if (number(rank) == 0) == is_head) for is_head in (True, False)]
    return [group for group in groups if group]


def carry_out(ranks: Ranks, change: Change, parts: t.Container[str], *, until_stop: bool) -> Course:
    """The whole rollout; with `until_stop` the steps before the first stop, where one is to come.

    `parts`: which of supervisor, proofs and backup the service has.
    """
    beside: t.Dict[str, t.List[str]] = {}
    for step in prepare(ranks, change, parts):
        outcome = yield step
        if outcome.reasons:
            return Ended(_text(outcome))
        if step.do == "announce":
            beside = outcome.answers
    if until_stop and change["restart"]:
        return Ended()
    ranks = [{**rank, "beside": beside.get(rank["host"], [])} for rank in ranks]
    for step in run(ranks, change, parts):
        outcome = yield step
        if outcome.reasons:
            return (yield from _return(ranks, change, parts, outcome))
    return Ended()


def _return(ranks: Ranks, change: Change, parts: t.Container[str], failed: StepOutcome) -> Course:
    way = way_back(ranks, change, parts, failed.lost)
    again = ""
    stuck = yield from _each(way.stop)
    for step in way.serve:
        outcome = yield step
        if outcome.reasons:
            again = _text(outcome)
            stuck += yield from _each(way.stop)
            break
    revived: t.Tuple[t.Tuple[str, str, bool], ...] = ()
    for step in way.revive:
        outcome = yield step
        for host, names in outcome.answers.items():
            revived += tuple((host, name, serves) for name, serves in (names or {}).items())
        stuck += (_text(outcome),) if outcome.reasons else ()
    before = any(ran_before(rank, change) for rank in ranks)
    return Ended(_text(failed), True, bool(way.serve), again, before, revived, stuck)


def _each(steps: Steps) -> t.Generator[Step, StepOutcome, t.Tuple[str, ...]]:
    """Steps as far as they can be done: a rank that cannot be stopped is no reason to leave another one."""
    stuck: t.Tuple[str, ...] = ()
    for step in steps:
        outcome = yield step
        stuck += (_text(outcome),) if outcome.reasons else ()
    return stuck


def _text(outcome: StepOutcome) -> str:
    return "\n".join(dict.fromkeys(outcome.reasons.values()))


def prepare(ranks: Ranks, change: Change, parts: t.Container[str]) -> Steps:
    """The steps before the first stop: after a failure nothing must be brought back."""
    generation, hosts = change["generation"], tuple(change["hosts"])
    missing = tuple(
        rank["host"]
        for rank in ranks
        if rank["host"] in hosts and generation not in rank["seen"]["generations"]
    )
    steps = [Step("record", hosts, generation), Step("create", missing, generation)]
    if change["restart"]:
        steps += [Step("pause", _hosts(ranks)), Step("announce", _hosts(ranks), generation)]
    return _of(steps, parts)


def run(ranks: Ranks, change: Change, parts: t.Container[str]) -> Steps:
    """The steps from the first stop on. A generation that runs on all of its hosts is only proven."""
    generation, hosts, head = change["generation"], tuple(change["hosts"]), _head(ranks)
    if not change["restart"]:
        steps = [Step("wait", hosts, generation), Step("prove", head), Step("keep", hosts, generation)]
        return _of([*steps, Step("route", head)], parts)
    steps = [
        Step("drain", head),
        Step("displace", tuple(rank["host"] for rank in ranks if rank.get("beside"))),
        *_stop(ranks),
        Step("back_up", head),
        *_start(ranks, hosts, generation),
        Step("wait", hosts, generation),
        Step("prove", head),
        Step("route", head),  # what does not serve through its routers has not served
        Step("keep", hosts, generation),
    ]
    return _of(steps, parts)


def way_back(ranks: Ranks, change: Change, parts: t.Container[str], lost: t.Collection[str]) -> WayBack:
    """The steps after a failure of `run`. `lost`: hosts whose connection was lost."""
    if lost and not change["restart"]:  # a service that was left alone stays up when a host stops answering
        return WayBack([], [], [])
    there = [rank for rank in ranks if rank["host"] not in lost]
    head, hosts = _head(there), tuple(change["fallback_hosts"])
    stop = [*([Step("drain", head)] if change["restart"] else []), *_stop(there)]
    serve = [
        Step("restore", head),
        *_start(ranks, hosts, change["fallback"]),
        Step("wait", hosts, change["fallback"]),
        Step("route", head),
        Step("keep", hosts, change["fallback"]),
    ]
    way = (stop, serve if returns(ranks, change, lost) else [], _revive(there, change))
    return WayBack(*([step._replace(back=True) for step in _of(steps, parts)] for steps in way))


def returns(ranks: Ranks, change: Change, lost: t.Collection[str]) -> bool:
    """Whether the generation that served before is started again.

    Where the ranks did not run, what ran in their place returns instead.
    """
    ran = any(rank["seen"]["current"]["running"] for rank in ranks)
    displaced = any(rank.get("beside") for rank in ranks)
    on_lost = set(change["fallback_hosts"]) & set(lost)
    return bool(change["fallback"]) and not on_lost and (ran or not displaced)


def removal(ranks: Ranks, parts: t.Container[str]) -> Steps:
    """The steps that remove a replica with all of its generations."""
    every = _hosts(ranks)
    return _of([Step("pause", every), *_stop(ranks), Step("remove", every)], parts)


def ran_before(rank: t.Dict[str, t.Any], change: Change) -> str:
    """The generation that ran on a rank's host, and that these ranks alone cannot start; "" for none.

    It had ranks on other hosts, too.
    """
    current = rank["seen"]["current"]
    generation = str(current["generation"])
    served = rank["seen"]["generations"].get(generation, {}).get("worked_at")
    other = not change["fallback"] and generation != change["generation"]
    return generation if current["running"] and other and served else ""


def _revive(ranks: Ranks, change: Change) -> Steps:
    before = [(rank["host"], ran_before(rank, change)) for rank in ranks]
    name_steps = [Step("name", (host,), generation) for host, generation in before if generation]
    return [
        *name_steps,
        Step("revive", tuple(host for host, generation in before if generation)),
        Step("revive_displaced", tuple(rank["host"] for rank in ranks if rank.get("beside"))),
    ]


def _stop(ranks: Ranks) -> Steps:
    return [
        Step("stop", tuple(rank["host"] for rank in group))
        for group in head_first(ranks, lambda rank: int(rank["rank"]))
    ]


def _start(ranks: Ranks, hosts: t.Collection[str], generation: str) -> Steps:
    """Give the name to the generation and start it."""
    there = [rank for rank in ranks if rank["host"] in hosts]
    groups = head_first(there, lambda rank: int(rank["rank"]))
    starts = [Step("start", tuple(rank["host"] for rank in group), generation) for group in groups]
    return [Step("name", tuple(hosts), generation), *starts]


def _hosts(ranks: Ranks) -> t.Tuple[str, ...]:
    return tuple(rank["host"] for rank in ranks)


def _head(ranks: Ranks) -> t.Tuple[str, ...]:
    return tuple(rank["host"] for rank in ranks if int(rank["rank"]) == 0)


def _of(steps: Steps, parts: t.Container[str]) -> Steps:
    return [step for step in steps if step.hosts and (step.do not in _NEEDS or _NEEDS[step.do] in parts)]
