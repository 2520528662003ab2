"""What an engine told about itself, as a plan reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True, eq=False)
class Answers:
    """An engine's options and tables. `image`: the ID of the image that answered; "": they are the snapshot.

    `support` is of the class SupportTable of the engine's module `support`. `unanswered`: parts that the
    image did not answer, which are the snapshot's, each with the reason. `guessed`: options or tables are the
    snapshot's, and the image may have others, so that nothing is refused for what they lack.
    """

    engine: str
    version: str
    options: tuple[Mapping[str, Any], ...]
    support: Any
    image: str = ""
    cuda: str = ""
    unanswered: Mapping[str, str] = field(default_factory=dict)
    guessed: bool = False

    @cached_property
    def by_flag(self) -> Mapping[str, Mapping[str, Any]]:
        """The options, by each of their flags."""
        return {flag: option for option in self.options for flag in option["flags"]}
