"""The console of every command: text of nodes, hubs, engines and models cannot control the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from headfirst.common.untrusted import for_terminal


class Terminal(Console):
    """rich's Console: output keeps the console's own styles and loses the escape sequences of its text.

    `:end:` and the like stay as they are: they occur in users' files and in the messages of programs.
    """

    def __init__(self, *, emoji: bool = False, **options: Any) -> None:
        super().__init__(emoji=emoji, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As Console.render, which all output passes; segments with control codes are rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=for_terminal(segment.text))
