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
    **dict.fromkeys(("dry-run", "dryrun", "noop", "simulate", "what-if"), ("--check",)),
    **dict.fromkeys(("yes", "force", "assume-yes", "auto-approve", "non-interactive"), ("--yes", "--force")),
    **dict.fromkeys(("output", "format"), ("--json",)),
    **dict.fromkeys(("debug", "verbosity"), ("--verbose",)),
    **dict.fromkeys(("host", "hosts", "node", "nodes"), ("--limit",)),
    "file": ("--inventory",),
    "set": ("--extra-vars",),
    "timeout": ("--wait",),
    "no-color": ("--plain",),
}
_FORMATS = ("json", "yaml", "table", "text", "wide")
# Of typer itself, or of click in its older versions.
_UsageError: Any = typer.BadParameter.__mro__[1]


class _Explained:
    """Of a verb or a group of verbs: its refusals."""

    def parse_args(self: Any, ctx: Any, args: list[str]) -> list[str]:
        """As typer does."""
        options = [
            option for param in self.get_params(ctx) for option in (*param.opts, *param.secondary_opts)
        ]
        _refuse_format(args, options)
        try:
            rest: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        except _UsageError as error:
            error.message = error.message.replace("Value error, ", "")  # pydantic's
            if getattr(error, "possibilities", None) is not None:
                meant = _meant(error.option_name, options)
                error.message += f". Did you mean {meant}?" if meant else ""
                error.possibilities = None
            raise
        return rest


class Verb(_Explained, TyperCommand):
    """A verb."""


class Verbs(_Explained, TyperGroup):
    """`deploy`, or a group of its verbs."""


def _meant(typed: str, options: list[str]) -> str | None:
    word = typed.lstrip("-")
    if word in _ELSEWHERE:
        return next((option for option in _ELSEWHERE[word] if option in options), None)
    words = {option.lstrip("-"): option for option in options if option.startswith("--")}
    near = difflib.get_close_matches(word, words, n=1, cutoff=_RESEMBLES)
    return words[near[0]] if near else None


def _refuse_format(args: list[str], options: list[str]) -> None:
    """`--output json` of other tools would write a file of that name."""
    for word, following in itertools.pairwise([*args, ""]):
        option, equals, value = word.partition("=")
        value = value if equals else following
        if option in ("-o", "--output") and option in options and value in _FORMATS:
            known = "For JSON write --json. " if "--json" in options else ""
            raise typer.BadParameter(
                f"{option} names a file or folder, and {value} is a format. {known}For a file of that name: "
                f"{option} ./{value}"
            )
