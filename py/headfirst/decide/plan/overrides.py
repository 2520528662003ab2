"""Variables of an inventory that replace those of the plan, or have no effect beside them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping


def notes(
    setting: str, variables: Iterable[str], planned: Collection[str], aliases: Mapping[str, str]
) -> Iterator[str]:
    """A note for each; no value is in one. `planned`: names that the plan sets to something else; `aliases`:
    other names of such, beside those with or without an S at the end.
    """
    for name in variables:
        others = (aliases.get(name), f"{name}S", name.removesuffix("S"))
        if name in planned:
            yield f"{setting}: {name} replaces the plan's own value"
        elif beside := next((other for other in others if other in planned), None):
            yield f"{setting}: {name} may have no effect beside {beside}, which the plan sets"
