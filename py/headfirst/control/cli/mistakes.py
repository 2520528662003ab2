"""What the refusal of a command line suggests: the option that was meant, under its name here, or none."""

from __future__ import annotations

import difflib
import itertools
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_RESEMBLES = 0.75
# Words of other tools, and options that do the same; the first that the verb has is suggested.
_ELSEWHERE = {
    **dict.fromkeys(("dry-run", "dryrun", "noop", "simulate"), ("--check",)),
    **dict.fromkeys(("yes", "force", "assume-yes", "auto-approve"), ("--yes", "--force")),
    **dict.fromkeys(("output", "format"), ("--json",)),
    **dict.fromkeys(("host", "hosts", "node", "nodes"), ("--limit",)),
    "debug": ("--verbose",),
}
_FORMATS = ("json", "yaml", "table", "text", "wide")
_UsageError: Any = typer.BadParameter.__mro__[1]  # of typer itself, or of click in its older versions


class _Explained:
    """Of a verb or a group of verbs: its refusals."""

    def parse_args(self: Any, ctx: Any, args: list[str]) -> list[str]:
        """As typer does."""
        options = [text for param in self.get_params(ctx) for text in (*param.opts, *param.secondary_opts)]
        for word, following in itertools.pairwise([*args, ""]):
            option, equals, value = word.partition("=")
            if option in {"-o", "--output"} & {*options} and (value if equals else following) in _FORMATS:
                raise typer.BadParameter(f"{option} names a file or folder. JSON is printed by --json.")
        try:
            rest: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        except _UsageError as error:
            error.message = error.message.replace("Value error, ", "")  # pydantic's
            if getattr(error, "possibilities", None) is not None:
                meant = _meant(error.option_name.lstrip("-"), options)
                error.message += f". Did you mean {meant}?" if meant else ""
                error.possibilities = None
            raise
        return rest


class Verb(_Explained, TyperCommand):
    """A verb."""


class Verbs(_Explained, TyperGroup):
    """`deploy`, or a group of its verbs."""


def _meant(word: str, options: list[str]) -> str | None:
    if word in _ELSEWHERE:
        return next((option for option in _ELSEWHERE[word] if option in options), None)
    words = {option.lstrip("-"): option for option in options if option.startswith("--")}
    return next(map(words.get, difflib.get_close_matches(word, words, n=1, cutoff=_RESEMBLES)), None)
