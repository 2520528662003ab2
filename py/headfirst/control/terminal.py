"""The console of every command: text of nodes, hubs, engines and models cannot control the terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from headfirst.common.untrusted import for_terminal

# What people paste stays in one line: a setting in quotes, a command, also one that ends a line, a flag with
# its value.
_WHOLE = re.compile(r'\w+="[^"]*"|`[^`]*`|(?:^|(?<=: ))deploy .*|--[\w-]+ \S+')
_SPACE = "\xa0"  # textwrap breaks no line there


def wrapped(text: str, width: int, indent: str = "") -> str:
    """Text in lines of at most `width` columns that break between words; later ones have two more spaces."""
    whole = _WHOLE.sub(lambda match: match[0].replace(" ", _SPACE), text)
    lines = textwrap.wrap(
        whole,
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(_SPACE, " ")


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

    def paragraph(self, text: str, style: str = "", *, title: str = "") -> None:
        """Print text. On a terminal lines break between words, below their indent; in a file they are whole.

        `title`: its first word, printed in red.
        """
        if self.is_terminal:
            text = "\n".join(
                wrapped(line.lstrip(" "), self.width, " " * (len(line) - len(line.lstrip(" "))))
                for line in text.split("\n")
            )
        printed = Text(text, style=style)
        printed.stylize("bold red", 0, len(title))
        self.print(printed, soft_wrap=True)
