"""`deploy init`: write a commented inventory, after asking or from flags."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.prompt import Prompt

from headfirst.common.errors import InputError
from headfirst.control.cli.verb import verb

if TYPE_CHECKING:
    from headfirst.control.inventory.template import Answers, HostAddress

_EXAMPLE = (
    "deploy init cluster.ini --host 192.0.2.11 --host 192.0.2.12 --user ubuntu "
    "--gpus 8 --gpu A100-80G --model deepseek-ai/DeepSeek-R1"
)
_WORD = re.compile(r"[A-Za-z0-9_./~:@,+-]+")
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
            help="Servers to probe over SSH for GPUs, network and RDMA, the head first.",
        ),
    ] = None,
    private_key: Annotated[str | None, typer.Option("--private-key", help="SSH key file.")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, max=64, help="GPUs per server.")] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU model, e.g. A100-80G.")] = None,
    model: Annotated[str | None, typer.Option(help="Hub id of the model.")] = None,
    model_source: Annotated[str, typer.Option(help="modelscope, huggingface or path.")] = "modelscope",
    weights_dir: Annotated[
        str, typer.Option(help="Folder for weights on every node.")
    ] = "/var/lib/headfirst/models",
    nic: Annotated[str | None, typer.Option(help="Interface between the nodes.")] = None,
    hca: Annotated[str | None, typer.Option(help="RDMA devices, comma-separated.")] = None,
    example: Annotated[
        str | None,
        typer.Option("--example", help="Write a shipped inventory instead: lab, a100x4, …"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
) -> None:
    """Write a commented inventory that `deploy plan` accepts; prompt for what no flag sets."""
    from headfirst.control.deployment.verbs.init import (
        copy_example,
        write_inventory,
        write_probed,
    )
    from headfirst.control.inventory.template import Answers

    if path.exists() and not force:
        raise InputError(f"{path} exists", hint="Choose another name, or add --force to overwrite it.")
    if example:
        copy_example(example, path)
        typer.echo(f"Wrote {path}. Next: deploy plan {path}")
        return
    if hosts:
        if host:
            raise InputError("--host and --hosts are both given", hint="Keep --hosts: it probes the servers.")
        given = {"gpus": str(gpus) if gpus else None, "gpu": gpu, "nic": nic, "hca": hca}
        answers = Answers(
            hosts=_named_hosts(hosts),
            user=_word(user) if user else None,
            private_key=_word(private_key) if private_key else None,
            model=_word(model) if model else None,
            model_source=_word(model_source),
            weights_dir=_word(weights_dir),
            common={name: _word(value.replace(" ", "")) for name, value in given.items() if value},
        )
        _report(path, write_probed(answers, path), model)
        return
    asks = None in (host or None, user, gpus, gpu, model)
    earlier: Answers | None = None
    while True:
        answers = Answers(
            hosts=_hosts(host, earlier),
            user=_answer(
                "--user", "SSH user", user, earlier.user if earlier and earlier.user else "ubuntu", _word
            ),
            private_key=_word(private_key) if private_key else None,
            common=_common(gpus, gpu, nic, hca, earlier),
            model=_answer(
                "--model",
                "Model",
                model,
                earlier.model if earlier and earlier.model else "deepseek-ai/DeepSeek-R1",
                _word,
            ),
            model_source=_word(model_source),
            weights_dir=_word(weights_dir),
        )
        try:
            note = write_inventory(answers, path)
            break
        except InputError as error:
            if not (asks and sys.stdin.isatty()):
                raise
            typer.echo(f"`deploy plan` refuses these answers: {error}", err=True)
            earlier = answers
    _report(path, note, answers.model)


def _report(path: Path, note: str | None, model: str | None) -> None:
    typer.echo(f"Wrote {path}. Next: deploy {'plan' if model else 'models'} {path}")
    if note:
        typer.echo(f"The plan was not checked: {note}", err=True)


def _common(
    gpus: int | None, gpu: str | None, nic: str | None, hca: str | None, earlier: Answers | None
) -> dict[str, str]:
    """The variables of all hosts, from flags or answers."""
    before = earlier.common if earlier else {}
    count = _answer("--gpus", "GPUs per server", str(gpus) if gpus else None, before.get("gpus", "8"), _count)
    common = {
        "gpus": str(count),
        "gpu": _answer("--gpu", "GPU model", gpu, before.get("gpu", "A100-80G"), _gpu),
    }
    common |= {"nic": _word(nic)} if nic else {}
    return common | ({"hca": _word(hca.replace(" ", ""))} if hca else {})


def _named_hosts(text: str) -> list[HostAddress]:
    from headfirst.control.inventory.template import HostAddress

    words = [word for word in text.replace(",", " ").split() if word]
    addresses = [HostAddress.named(word, index) for index, word in enumerate(words, start=1)]
    names = [host.name for host in addresses]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"two servers are called {repeated}", hint="Name them: a=192.0.2.1,b=192.0.2.2")
    if not addresses:
        raise InputError("--hosts names no server", hint=f"Example: {_EXAMPLE}")
    return addresses


def _hosts(given: list[str] | None, earlier: Answers | None) -> list[HostAddress]:
    from headfirst.control.inventory.template import HostAddress

    def parse(text: str) -> list[HostAddress]:
        addresses = [HostAddress.parse(word, index) for index, word in enumerate(text.split(), start=1)]
        if not addresses:
            raise InputError("no server is given")
        return addresses

    default = " ".join(f"{host.name}={host.address}" for host in earlier.hosts) if earlier else None
    question = "Addresses of the servers, the head first, separated by spaces"
    return _answer("--host", question, " ".join(given) if given else None, default, parse)


def _answer(flag: str, question: str, given: object, default: str | None, check: Callable[[str], _T]) -> _T:
    """The flag's value, or the first answer that `check` accepts."""
    if given is not None:
        return check(str(given))
    if not sys.stdin.isatty():
        raise InputError(
            f"{flag} is missing, and there is no terminal for a prompt", hint=f"Example: {_EXAMPLE}"
        )
    while True:
        try:
            return check((Prompt.ask(question, default=default) if default else Prompt.ask(question)) or "")
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
