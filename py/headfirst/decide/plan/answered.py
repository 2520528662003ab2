"""How a plan that is made with what an image answered differs from the one that was printed before. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headfirst.decide.plan.restarts import Difference, differences
from headfirst.decide.plan.types import Plan, PlannedService


class Change(NamedTuple):
    """What differs of a service, a sentence; `left_out`: it only lacks arguments that a preset had chosen."""

    service: str
    text: str
    left_out: bool


def changes(before: Plan, after: Plan) -> list[Change]:
    """The differences of each service in layout, arguments and environment, once for all its ranks."""
    return [
        change
        for old, new in zip(before.services, after.services, strict=True)
        for change in dict.fromkeys(_of_service(old, new))
    ]


def _of_service(old: PlannedService, new: PlannedService) -> Iterator[Change]:
    chosen = {argument.flag for sized, _ in old.pools for argument in sized.chosen_arguments}
    for (was, _), (now, _) in zip(old.pools, new.pools, strict=True):
        if was.layout != now.layout:
            yield Change(str(new), f"{was.layout} → {now.layout}", False)
    for (_, was_node), (_, now_node) in zip(old.ranks, new.ranks, strict=True):
        for each in differences(was_node.container.module_spec(), now_node.container.module_spec()):
            yield Change(str(new), str(each), _is_left_out(each, chosen))


def _is_left_out(each: Difference, chosen: set[str]) -> bool:
    return each.field == "command" and each.after is None and each.name in chosen
