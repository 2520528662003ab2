"""Declares the verbs of `deploy`: each is a function, an example and the shared options that it takes.

The name of the function is the verb, its docstring the help, its parameters the arguments and options.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from headfirst.common.errors import InputError
from headfirst.control.cli import mistakes, passwords
from headfirst.control.cli.passwords import option
from headfirst.control.deployment.running.options import BundleRequest, RunOptions
from headfirst.control.deployment.running.stages import ALL_RANKS, GROUPS, NAMES, complete
from headfirst.control.terminal import Terminal

if TYPE_CHECKING:
    from headfirst.control.run.reporters.reporter import Reporter

app = typer.Typer(
    name="deploy",
    cls=mistakes.Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Turn servers with SSH into a multi-node LLM service with a chat page.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong input, 3 not ready.",
)
Verb = Callable[..., None]
Probe = Annotated[
    bool, typer.Option("--probe", help="Probe the hosts over SSH for what the inventory omits.")
]
Nodes = Annotated[
    int | None,
    typer.Option(
        "--nodes",
        min=1,
        max=254,  # addresses of 192.0.2.0/24
        help="Plan for this many hosts of a scheduler; the inventory lists none.",
    ),
]


@dataclass(frozen=True)
class OutputFormat:
    """How a verb prints: JSON for machines, or for people, then `plain` lines or a live display."""

    as_json: bool = False
    plain: bool = False

    def reporter(self) -> AbstractContextManager[Reporter]:
        """Shows a run: as JSON events, a live display on a terminal, plain lines elsewhere."""
        from headfirst.control.run.reporters.json_events import JsonReporter
        from headfirst.control.run.reporters.live import LiveReporter
        from headfirst.control.run.reporters.plain import PlainReporter

        if self.as_json:
            return JsonReporter(sys.stdout)
        console = Terminal(highlight=False)
        if self.plain or not console.is_terminal:
            return PlainReporter(sys.stdout)
        return LiveReporter(console)


_OF_HOSTS = [group for group in GROUPS if group not in ALL_RANKS]
# The short ones keep Ansible's names and meaning.
_INVENTORY = Annotated[Path | None, typer.Argument(metavar="INVENTORY", help="Inventory file or folder.")]
_INVENTORY_ALONE = Annotated[Path, typer.Argument(metavar="INVENTORY")]
_INVENTORIES = option(
    list[Path] | None, "-i", "--inventory", metavar="PATH", help="More inventories, as in Ansible."
)
_EXTRA_VARS = option(
    list[str] | None, "-e", "--extra-vars", metavar="KEY=VALUE|@FILE", help="Extra variables."
)
# Shared options before those of a verb, and after them.
_BEFORE = {
    "limit": option(
        str | None,
        *("-l", "--limit"),
        metavar="PATTERN",
        help=f"Only these hosts; for stages that prepare hosts: {', '.join(_OF_HOSTS)}.",
    ),
    "tags": option(
        list[str] | None,
        *("-t", "--tags"),
        metavar="STAGE,…",
        help=f"Only these stages: {', '.join(NAMES)}; or groups: {', '.join(GROUPS)}.",
        autocompletion=complete,
    ),
    "service": option(
        str | None, "--service", metavar="NAME[/REPLICA]", help="Only this service, or this replica of it."
    ),
    "whole_service": option(str | None, "--service", metavar="NAME", help="Only this service."),
    "shown_hosts": option(
        str | None, "-l", "--limit", metavar="PATTERN", help="Show these hosts only, as Ansible's --limit."
    ),
}
_AFTER = {
    "check": option(bool, "--check", help="Change nothing; report what would change."),
    "diff": option(bool, "--diff", help="Show the differences of changed files in the log."),
    "wait": option(
        float, "--wait", metavar="SECONDS", min=0, help="Wait this long for another run on the same hosts."
    ),
    "bundle": option(
        list[Path] | None,
        "--bundle",
        metavar="FILE",
        help="Use this bundle as the only source; the older ones first where it contains a difference.",
    ),
    "signers": option(
        Path | None, "--signers", metavar="FILE", help="Allowed signers of the bundle (ssh-keygen)."
    ),
    "unsigned": option(bool, "--unsigned", help="Accept a bundle without a signature of an allowed signer."),
    "older_bundle": option(
        bool, "--older-bundle", help="Accept a signed bundle that is older than the newest accepted one."
    ),
    "json": option(bool, "--json", help="JSON for machines."),
    "plain": option(bool, "--plain", help="Plain lines instead of a live display."),
    "verbose": option(int, "-v", "--verbose", count=True, help="More of Ansible in the log."),
}
_DEFAULTS = {float: 0.0, bool: False, int: 0}
_OF_A_BUNDLE = ("bundle", "signers", "unsigned", "older_bundle")
Shared = Literal[
    "limit", "tags", "service", "whole_service", "shown_hosts",
    "check", "diff", "wait", "bundle", "json", "plain", "verbose",
]  # fmt: skip


def verb(
    example: str,
    *shared: Shared,
    of: typer.Typer = app,
    inventory: Literal["optional", "required", "alone", "none"] = "optional",
    unless: str = "",
) -> Callable[[Verb], Verb]:
    """Declare a verb. The function gets `run` (RunOptions), `output` (OutputFormat) and the verb's options.

    `shared`: names of _BEFORE and _AFTER; `bundle` brings the three options beside it. `inventory`: whether
    one must be given as an argument, `alone` without -i. `unless`: an own option that needs no inventory.
    """

    def declare(function: Verb) -> Verb:
        parameters = _parameters(function, shared, inventory)

        @functools.wraps(function)
        def command(**arguments: Any) -> None:
            values: dict[str, Any] = {}
            if inventory != "none":
                passwords.accept(arguments)
                hint = f"For example: {example}" + (f". Without an inventory: --{unless}" if unless else "")
                values["run"] = _run_options(arguments, "" if unless and arguments[unless] else hint)
            values["output"] = OutputFormat(arguments.pop("json", False), arguments.pop("plain", False))
            taken = inspect.signature(function).parameters
            function(**{name: value for name, value in values.items() if name in taken}, **arguments)

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        name = function.__name__.rstrip("_")
        listed = " ".join(str(inspect.getdoc(function)).partition("\n\n")[0].split()).partition(". ")[0]
        of.command(name, cls=mistakes.Verb, short_help=listed.rstrip("."), epilog=f"Example: {example}")(
            command
        )
        return function

    return declare


def bundle_request(
    paths: list[Path] | None, signers: Path | None, *, unsigned: bool, older: bool
) -> BundleRequest | None:
    """What --bundle and the options beside it ask for. InputError where they contradict each other."""
    if not paths:
        if signers or unsigned or older:
            raise InputError(
                "--signers, --unsigned and --older-bundle need --bundle", hint="Name it: --bundle FILE"
            )
        return None
    if signers and unsigned:
        raise InputError("--signers and --unsigned exclude each other", hint="Keep one of them.")
    return BundleRequest(paths, signers, unsigned, older)


def write_file(path: Path, text: str) -> None:
    """Write what the user asked for with -o. InputError where that is not possible."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"the file cannot be written: {error.strerror}", where=str(path)) from None


def _parameters(function: Verb, shared: Sequence[str], inventory: str) -> list[inspect.Parameter]:
    """Those of the command line, in the order of the help: arguments, options, passwords."""
    declared = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(function, eval_str=True).parameters.values()
        if parameter.name not in ("run", "output")
    ]
    arguments = [
        parameter
        for parameter in declared
        if isinstance(parameter.annotation.__metadata__[0], typer.models.ArgumentInfo)
    ]
    options = [parameter for parameter in declared if parameter not in arguments]
    if "bundle" in shared:
        shared = [*shared, *_OF_A_BUNDLE]
    before = [_parameter(name, kind) for name, kind in _BEFORE.items() if name in shared]
    after = [_parameter(name, kind) for name, kind in _AFTER.items() if name in shared]
    if inventory == "none":
        return [*arguments, *options, *after]
    first = _parameter("inventory", _INVENTORY_ALONE if inventory == "alone" else _INVENTORY)
    if inventory != "optional":
        first = first.replace(default=inspect.Parameter.empty)
    more = [] if inventory == "alone" else [_parameter("inventories", _INVENTORIES)]
    more.append(_parameter("extra_vars", _EXTRA_VARS))
    secret = [_parameter(name, kind) for name, kind in passwords.OPTIONS.items()]
    return [first, *arguments, *more, *before, *options, *after, *secret]


def _parameter(name: str, kind: Any) -> inspect.Parameter:
    default = _DEFAULTS.get(kind.__origin__)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _run_options(arguments: dict[str, Any], hint: str) -> RunOptions:
    """The shared options, taken out of `arguments`. With `hint` InputError where no inventory is named."""
    argument, more = arguments.pop("inventory"), arguments.pop("inventories", None)
    inventories = [*([argument] if argument else []), *(more or [])]
    if hint and not inventories:
        raise InputError("no inventory is named", hint=hint)
    paths, signers, unsigned, older = (arguments.pop(name, None) for name in _OF_A_BUNDLE)
    return RunOptions(
        inventories,
        arguments.pop("extra_vars") or [],
        limit=arguments.pop("limit", arguments.pop("shown_hosts", None)),
        tags=arguments.pop("tags", None) or [],
        check=arguments.pop("check", False),
        diff=arguments.pop("diff", False),
        verbosity=arguments.pop("verbose", 0),
        service=arguments.pop("service", arguments.pop("whole_service", None)),
        wait_s=arguments.pop("wait", 0.0),
        bundle=bundle_request(paths, signers, unsigned=bool(unsigned), older=bool(older)),
    )


def exclude(options: dict[str, object], message: str) -> None:
    """InputError for the first option that is given."""
    for name, value in options.items():
        if value:
            raise InputError(message.format(name), where="deploy test")
