"""The options of a load, which `deploy bench` and `deploy tune` share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headfirst.common.errors import InputError
from headfirst.control.terminal import Terminal

if TYPE_CHECKING:
    from headfirst.control.bench.slo import Promise
    from headfirst.control.deployment.measuring.bench import Wanted, Watcher

ShapeName = Literal["chat", "long-prompt", "long-answer", "shared-prefix"]
Shape = Annotated[ShapeName, typer.Option("--shape", help="Lengths of prompts and answers.")]
Dataset = Annotated[
    Path | None,
    typer.Option(
        "--dataset",
        metavar="FILE",
        help="Prompts in place of the shape's: a line is text, a list of messages, or an object with both.",
        show_default=False,
    ),
]
Concurrency = Annotated[
    str | None,
    typer.Option(
        "--concurrency", metavar="N,…", help="Concurrent requests. Default: 1,4,16.", show_default=False
    ),
]
Rate = Annotated[
    str | None,
    typer.Option(
        "--rate", metavar="N,…", help="Requests a second, instead of --concurrency.", show_default=False
    ),
]
Requests = Annotated[
    int | None,
    typer.Option("--requests", min=1, help="Requests of each load. Default: 20 or more.", show_default=False),
]
Seconds = Annotated[
    float | None,
    typer.Option(
        "--seconds", min=0.1, help="Send requests for this time, instead of --requests.", show_default=False
    ),
]
Warmup = Annotated[
    int | None,
    typer.Option(
        "--warmup", min=0, help="Warm-up requests, not measured. Default: the concurrency.",
        show_default=False,
    ),
]  # fmt: skip
Seed = Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same requests.")]
_DEFAULT = "1,4,16"


def wanted(
    shape: ShapeName,
    dataset: Path | None,
    concurrency: str | None,
    rate: str | None,
    requests: int | None,
    seconds: float | None,
    warmup: int | None,
    seed: int,
    promised: Sequence[Promise] = (),
) -> Wanted:
    """The options together. InputError where two exclude each other."""
    from headfirst.control.bench.load import loads
    from headfirst.control.bench.shapes import SHAPES
    from headfirst.control.deployment.measuring.bench import Wanted

    for one, other, names in (
        (concurrency, rate, "--concurrency and --rate"),
        (requests, seconds, "--requests and --seconds"),
    ):
        if one is not None and other is not None:
            raise InputError(f"{names} exclude each other", hint="Leave one of them out.")
    return Wanted(
        shape=SHAPES[shape],
        loads=loads("rate", rate) if rate else loads("concurrency", concurrency or _DEFAULT),
        dataset=dataset,
        promised=promised,
        number=requests,
        seconds=seconds,
        warmup=warmup,
        seed=seed,
    )


@contextmanager
def watcher(console: Terminal, wanted: Wanted, *, as_json: bool) -> Iterator[Watcher]:
    """What shows the run while it lasts: nothing with `as_json`."""
    from headfirst.control.cli.shown import bench as shown

    if as_json:
        yield shown.Silent()
        return
    with shown.watcher(console, wanted.loads, wanted.number) as live:
        yield live
