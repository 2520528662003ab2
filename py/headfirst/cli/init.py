"""`deploy init`: write a commented inventory, after asking or from flags."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.prompt import Prompt

from headfirst.cluster.template import Answers, HostAddress, render_inventory
from headfirst.errors import InputError

EXAMPLE = (
    "Example: deploy init mine.ini --host 192.0.2.11 --host 192.0.2.12 --user ubuntu "
    "--gpus 8 --gpu A100-80G --model deepseek-ai/DeepSeek-R1"
)


def run(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Inventory to write.")] = Path("cluster.ini"),
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", metavar="[NAME=]ADDRESS", help="A server, the head first. Repeat.", show_default=False
        ),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="SSH user.", show_default=False)] = None,
    private_key: Annotated[
        str | None, typer.Option("--private-key", help="SSH key file.", show_default=False)
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs per server.", show_default=False)] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU model, e.g. A100-80G.", show_default=False)] = None,
    model: Annotated[str | None, typer.Option(help="Hub id of the model.", show_default=False)] = None,
    model_source: Annotated[str, typer.Option(help="modelscope, huggingface or path.")] = "modelscope",
    weights_dir: Annotated[
        str, typer.Option(help="Folder for weights on every node.")
    ] = "/var/lib/headfirst/models",
    nic: Annotated[str | None, typer.Option(help="Interface between the nodes.", show_default=False)] = None,
    hca: Annotated[
        str | None, typer.Option(help="RDMA devices, comma-separated.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
) -> None:
    """Write a commented inventory; asks for what no flag gives."""
    if path.exists() and not force:
        raise InputError(
            f"{path} exists already", hint="Choose another name, or add --force to overwrite it."
        )
    addresses = host or _ask("--host", "Servers' addresses, the head first (separated by spaces)").split()
    answers = Answers(
        hosts=[HostAddress.parse(text, index) for index, text in enumerate(addresses, start=1)],
        user=user or _ask("--user", "SSH user", "ubuntu"),
        private_key=private_key,
        gpus=gpus or int(_ask("--gpus", "GPUs per server", "8")),
        gpu=gpu or _ask("--gpu", "GPU model", "A100-80G"),
        model=model or _ask("--model", "Model", "deepseek-ai/DeepSeek-R1"),
        model_source=model_source,
        weights_dir=weights_dir,
        nic=nic,
        hca=hca,
    )
    path.write_text(render_inventory(answers, path))
    typer.echo(f"Wrote {path}. Next: deploy plan {path}")


def _ask(flag: str, question: str, default: str | None = None) -> str:
    if not sys.stdin.isatty():
        raise InputError(f"{flag} is missing, and there is no terminal to ask on", hint=EXAMPLE)
    answer: str = Prompt.ask(question, default=default) if default else Prompt.ask(question)
    return answer
