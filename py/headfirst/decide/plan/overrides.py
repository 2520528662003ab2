"""Variables of an inventory that replace those of the plan, or have no effect beside them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def notes(
    setting: str, given: Collection[str], planned: Collection[str], aliases: Mapping[str, str]
) -> list[str]:
    """A note for each; values may be secrets and are in none.

    `planned`: names that the plan sets to something else; `aliases`: other names of such. A name with or
    without an S at its end is one, too.
    """
    found = []
    for name in given:
        others = (aliases.get(name), f"{name}S", name.removesuffix("S"))
        beside = next((other for other in others if other in planned), None)
        if name in planned:
            found.append(f"{setting}: {name} takes the place of the plan's own value")
        elif beside:
            found.append(f"{setting}: {name} may have no effect beside {beside}, which the plan sets")
    return found
