"""`deploy init`: write a commented inventory, after asking or from flags."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import ON_NODES
from rich.prompt import Confirm, Prompt

from headfirst.common.errors import InputError
from headfirst.control.cli.verb import verb

if TYPE_CHECKING:
    from headfirst.control.inventory.template import Answers, HostAddress

_EXAMPLE = (
    "deploy init cluster.ini --host 192.0.2.11 --host 192.0.2.12 --user ubuntu "
    "--gpus 8 --gpu A100-80G --model deepseek-ai/DeepSeek-R1"
)
_WORD = re.compile(r"[A-Za-z0-9_./~:@,+-]+")
_SERVICE = re.compile(r"[a-z][a-z0-9_]{0,30}")
# Groups that have a meaning of their own.
_RESERVED = (
    *("all", "ungrouped", "head", "workers"),
    *("prefill", "decode", "spares", "webui", "router", "monitoring"),
)
_T = TypeVar("_T")


@verb(_EXAMPLE, inventory="none")
def init(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Inventory to write.")] = Path("cluster.ini"),
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="[NAME=]ADDRESS", help="A server, the head first. Repeat."),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="SSH user.")] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            "--hosts",
            metavar="HOST,HOST,…",
            help="Servers to probe for GPUs, network and RDMA, the head first; localhost without SSH.",
        ),
    ] = None,
    private_key: Annotated[str | None, typer.Option("--private-key", help="SSH key file.")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, max=64, help="GPUs per server.")] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU model, e.g. A100-80G.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="[NAME=]ID",
            help="Hub id of the model; without it, choose one later. Repeat with names for several services.",
        ),
    ] = None,
    layout: Annotated[
        bool | None,
        typer.Option(
            "--layout/--no-layout",
            help="Write the best parallel sizes and replicas for these GPUs, or leave them to the plan.",
        ),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="Engine that serves the model; without it, the default one.")
    ] = None,
    model_source: Annotated[str, typer.Option(help=f"{', '.join(ON_NODES)}.")] = "modelscope",
    weights_dir: Annotated[
        str, typer.Option(help="Folder for weights on every node.")
    ] = "/var/lib/headfirst/models",
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code", help="Let Python code of the model's repository run; read it before."
        ),
    ] = False,
    nic: Annotated[str | None, typer.Option(help="Interface between the nodes.")] = None,
    hca: Annotated[str | None, typer.Option(help="RDMA devices, comma-separated.")] = None,
    example: Annotated[
        str | None,
        typer.Option("--example", help="Write a shipped inventory instead: lab, a100x4, …"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
) -> None:
    """Write a commented inventory that `deploy plan` accepts; prompt for what no flag sets.

    Without servers, of this machine.
    """
    from headfirst.control.deployment.verbs.init import copy_example, probed
    from headfirst.control.inventory.template import Answers

    if path.exists() and not force:
        raise InputError(f"{path} exists", hint="Choose another name, or add --force to overwrite it.")
    if example:
        flags: dict[str, object] = {"--host": host, "--hosts": hosts, "--user": user}
        flags |= {"--private-key": private_key, "--gpus": gpus, "--gpu": gpu, "--model": model}
        flags |= {"--layout": layout, "--engine": engine}
        flags |= {"--trust-remote-code": trust_remote_code or None, "--nic": nic, "--hca": hca}
        if flag := next((flag for flag, value in flags.items() if value is not None), None):
            hint = f"Leave {flag} out, and edit the file that is written."
            raise InputError(f"--example writes a shipped inventory as it is, without {flag}", hint=hint)
        copy_example(example, path)
        typer.echo(f"Wrote {path}. Next: deploy plan {path}")
        return
    if hosts and host:
        raise InputError("--host and --hosts are both given", hint="Keep --hosts: it probes the servers.")
    asks = sys.stdin.isatty() and None in (host or None, user, gpus, gpu, model)
    names = " ".join(model) if model else None
    question = "Model, or NAME=MODEL of each service (empty: choose later)"
    listed = _named_hosts(hosts) if hosts else _hosts(host, None)
    common_values = {"gpus": str(gpus) if gpus else None, "gpu": gpu, "nic": nic, "hca": hca}
    stated = Answers(
        hosts=listed,
        user=_word(user) if user else None,
        private_key=_word(private_key) if private_key else None,
        model=None,
        model_source=_word(model_source),
        weights_dir=_word(weights_dir),
        common={name: _word(value.replace(" ", "")) for name, value in common_values.items() if value},
        engine=_word(engine) if engine else None,
        trust_remote_code=trust_remote_code,
    )
    if hosts or all(server.local for server in listed):
        probed_answers = probed(stated, path)
        models = _answer(question, names or (None if asks and not hosts else ""), "", _models)
        _finish(probed_answers, models, path, layout=layout is not False)
        return
    needed = {"--user": user, "--gpus": gpus, "--gpu": gpu}
    missing = [flag for flag, value in needed.items() if value is None]
    if missing and not asks:
        raise InputError(f"there is no terminal to ask for {', '.join(missing)}", hint=f"Example: {_EXAMPLE}")
    earlier: Answers | None = None
    while True:
        before = earlier.common if earlier else {}
        addresses = _hosts(host, earlier) if earlier else listed
        login = _answer("SSH user", user, (earlier and earlier.user) or "ubuntu", _word)
        count = _answer("GPUs per server", gpus, before.get("gpus", "8"), _count)
        common = {"gpus": str(count), "gpu": _answer("GPU model", gpu, before.get("gpu", "A100-80G"), _gpu)}
        common |= {name: value for name, value in stated.common.items() if name not in common}
        answers = replace(stated, hosts=addresses, user=login, common=common)
        models = _answer(question, names or (None if asks else ""), "", _models)
        try:
            _finish(answers, models, path, layout=layout, asks=asks)
            return
        except InputError as error:
            if not asks:
                raise
            typer.echo(f"`deploy plan` refuses these answers: {error}", err=True)
            earlier = answers


def _finish(
    answers: Answers, models: dict[str, str], path: Path, *, layout: bool | None, asks: bool = False
) -> None:
    """Offer the layout, write the inventory and print what to type next."""
    from headfirst.control.deployment.verbs.init import proposal, with_services, write_inventory

    if "" not in models and models:
        offered = with_services(answers, models, path)
        typer.echo(f"Services: {offered.text}.")
        answers = offered.answers
    elif models:
        answers = replace(answers, model=models[""])
        best = proposal(answers, path) if layout is not False else None
        if best is not None:
            typer.echo(f"{models['']}: {best.text}.")
            if layout or not asks or Confirm.ask("Write this layout?", default=True):
                answers = best.answers
    note = write_inventory(answers, path)
    typer.echo(f"Wrote {path}. Next: deploy {'plan' if models else 'models'} {path}")
    if note:
        typer.echo(f"The plan was not checked: {note}", err=True)


def _models(text: str) -> dict[str, str]:
    """Model by the name of its service; of one model without a name by "". Empty: none yet."""
    models: dict[str, str] = {}
    words = text.split()
    for word in words:
        name, _, id = word.rpartition("=")
        if not name and len(words) > 1:
            raise InputError(
                f"{word} has no name, and there are several models", hint=f"Name it: --model chat={word}"
            )
        if name in models:
            raise InputError(f"two models are called {name}", hint="Each service has a name of its own.")
        if name and (not _SERVICE.fullmatch(name) or name in _RESERVED):
            raise InputError(
                f"{name} cannot be the name of a service",
                hint="It has lower-case letters, digits and _, such as chat or embedding_2.",
            )
        models[name] = _word(id)
    return models


def _named_hosts(text: str) -> list[HostAddress]:
    from headfirst.control.inventory.template import HostAddress

    words = text.replace(",", " ").split()
    addresses = [HostAddress.parse(word, index, labelled=True) for index, word in enumerate(words, start=1)]
    names = [host.name for host in addresses]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"two servers are called {repeated}", hint="Name them: a=192.0.2.1,b=192.0.2.2")
    if not addresses:
        raise InputError("--hosts names no server", hint=f"Example: {_EXAMPLE}")
    return addresses


def _hosts(words: list[str] | None, earlier: Answers | None) -> list[HostAddress]:
    from headfirst.control.inventory.address import this_machine
    from headfirst.control.inventory.template import HostAddress

    def parse(text: str) -> list[HostAddress]:
        addresses = [HostAddress.parse(word, index) for index, word in enumerate(text.split(), start=1)]
        if not addresses:
            raise InputError("no server is given")
        return addresses

    if not (words or sys.stdin.isatty()):
        return parse("localhost")
    before = earlier.hosts if earlier else []
    places = [f"{server.name}={'localhost' if server.local else server.address}" for server in before]
    default = " ".join(places) or "localhost"
    question = f"Servers, the head first, separated by spaces (localhost: this machine, {this_machine()})"
    return _answer(question, " ".join(words) if words else None, default, parse)


def _answer(question: str, option: object, default: str, check: Callable[[str], _T]) -> _T:
    """The value of a flag, or the first answer that `check` accepts."""
    if option is not None:
        return check(str(option))
    while True:
        try:
            return check(Prompt.ask(question, default=default))
        except InputError as error:
            typer.echo(f"  {error}", err=True)


def _word(text: str) -> str:
    if not _WORD.fullmatch(text):
        raise InputError(f"{text!r} is empty or has characters that an inventory value cannot have")
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise InputError(f"{text!r} is not a number from 1 to 64")
    return int(text)


def _gpu(text: str) -> str:
    from headfirst.decide.hardware import gpus

    return gpus.find(text).name
