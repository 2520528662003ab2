"""A conversation on a terminal."""

from __future__ import annotations

from rich.console import Console

from headfirst.common.untrusted import for_terminal
from headfirst.control.live.chat import Chat

_HELP = "Enter sends. /new starts a new conversation, /exit or Ctrl-D ends."


def print_answer(chat: Chat, question: str, console: Console) -> None:
    """Print the answer as it is written; thinking is dim. Ctrl-C (KeyboardInterrupt) breaks it off."""
    thinking = False
    for piece in chat.ask(question):
        if thinking and not piece.reasoning:
            console.print("\n")
        thinking = piece.reasoning
        style = "dim" if piece.reasoning else None
        console.print(
            for_terminal(piece.text), end="", style=style, markup=False, highlight=False, soft_wrap=True
        )
    console.print()


def converse(chat: Chat, console: Console) -> None:
    """Ask for questions and print answers until /exit or the end of input; Ctrl-C stops an answer."""
    console.print(_HELP, style="dim")
    while True:
        try:
            question = console.input("[bold cyan]> [/]").strip()
        except (EOFError, KeyboardInterrupt):
            console.print()
            return
        if question == "/exit":
            return
        if question == "/new":
            chat.forget()
        elif question:
            try:
                print_answer(chat, question, console)
            except KeyboardInterrupt:
                console.print(" (stopped)", style="dim")
