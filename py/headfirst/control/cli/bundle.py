"""`deploy bundle`: one file with all that the plan needs from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headfirst.control.cli import login_options, options

EXAMPLE = "Example: deploy bundle cluster.ini -o cluster.tar --sign ~/.ssh/id_ed25519"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The bundle to write.")
    ] = Path("bundle.tar"),
    sign: Annotated[
        Path | None,
        typer.Option("--sign", metavar="KEY", help="SSH key that signs the bundle.", show_default=False),
    ] = None,
    weights: Annotated[bool, typer.Option("--weights", help="Add the models' weights.")] = False,
    since: Annotated[
        Path | None,
        typer.Option(
            "--since",
            metavar="OLD.tar",
            help="Include only what this older bundle does not have.",
            show_default=False,
        ),
    ] = None,
    system: Annotated[
        list[str] | None,
        typer.Option(
            "--system",
            metavar="NAME-RELEASE",
            help="System of the hosts, such as debian-12 or ubuntu-24.04. Default: this machine's.",
            show_default=False,
        ),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            "--kernel",
            metavar="RELEASE",
            help="Kernel of hosts on which NVIDIA's driver is built (`uname -r`).",
            show_default=False,
        ),
    ] = None,
    probe: Annotated[bool, typer.Option("--probe", help="Probe the hosts over SSH for these.")] = False,
    as_json: options.Json = False,
    plain: options.Plain = False,
) -> None:
    """Collect images, Debian packages and Python wheels of the plan for a closed network.

    Run it again after a stop: complete files are kept.
    """
    from headfirst.control.cli.reporting import choose_reporter
    from headfirst.control.cli.shown.bundle import print_made
    from headfirst.control.deployment.verbs.bundle import BundleOptions, bundle

    wanted = BundleOptions(
        inventories=options.inventories(inventory, inventory_option),
        extra_vars=extra_vars or [],
        output=output,
        weights=weights,
        sign=sign,
        since=since,
        systems=system or [],
        kernels=kernel or [],
        probe=probe,
    )
    with choose_reporter(as_json=as_json, plain=plain) as reporter:
        made = bundle(wanted, reporter)
    print_made(made, as_json=as_json)
