"""What `deploy diagnose` reads of an engine beside its log: its flags and its tuning rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headfirst.decide.diagnose.types import Live, Node, Tuning


@dataclass(frozen=True)
class Diagnostics:
    """Flags are those of the command line, as `--node-rank`; "" where the engine has none.

    `tune` gives advice from the nodes (rank 0 first), the live figures (None: the engine gives none) and the
    flags that have a value; it returns None where these report nothing. No `tune`: there are no tuning rules.
    """

    rank_flag: str = ""  # two ranks with one value are a mistake
    head_flag: str = ""  # the same on all ranks
    own_flags: frozenset[str] = frozenset()  # what one rank has and another does not
    secret_flags: frozenset[str] = frozenset()  # their values are never shown
    slow_start_flags: frozenset[str] = (
        frozenset()
    )  # with one of them the start of a large model takes 20 minutes
    tune: Callable[[Sequence[Node], Live | None, Mapping[str, str]], Tuning | None] | None = None
