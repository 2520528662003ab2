"""Log lines on a terminal: each rank in a colour of its own; plain text elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from headfirst.common.untrusted import for_terminal
from headfirst.control.live.logs import LogLine

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_magenta")


def print_logs(lines: Iterable[LogLine], console: Console, *, timestamps: bool = False) -> None:
    """Print `[rank 0 node1] text`, with the replica where there are several; `timestamps` are UTC."""
    for line in lines:
        replica = f"{line.replica} " if line.replica else ""
        who = "router" if line.rank is None else f"rank {line.rank}"
        shown = Text(f"[{replica}{who} {line.host}] ", style=_COLOURS[(line.rank or 0) % len(_COLOURS)])
        if timestamps:
            shown.append(f"{for_terminal(line.time)} ", style="dim")
        # The engine may colour its lines itself.
        shown.append_text(Text.from_ansi(for_terminal(line.text, colours=True)))
        console.print(shown, soft_wrap=True, highlight=False)
