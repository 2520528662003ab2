"""`deploy bundle`: one file with all that the plan needs from outside, and what a plan takes from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headfirst.common.untrusted import shown
from headfirst.control.cli.verb import OutputFormat, verb
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.run import amounts

if TYPE_CHECKING:
    from headfirst.control.bundle.manifest import BundleManifest
    from headfirst.control.deployment.bundled import Bundled
    from headfirst.control.deployment.verbs.bundle import WrittenBundle

_KINDS = {
    "images": "images",
    "apt": "packages",
    "wheels": "wheels of the node tools",
    "models": "weights",
    "controller": "wheels of Headfirst",
}


@verb("deploy bundle cluster.ini -o cluster.tar --sign ~/.ssh/id_ed25519", "json", "plain")
def bundle(
    run: RunOptions,
    output: OutputFormat,
    file: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The bundle to write.")] = Path(
        "bundle.tar"
    ),
    sign: Annotated[
        Path | None, typer.Option("--sign", metavar="KEY", help="SSH key that signs the bundle.")
    ] = None,
    weights: Annotated[bool, typer.Option("--weights", help="Add the models' weights.")] = False,
    since: Annotated[
        Path | None,
        typer.Option("--since", metavar="OLD.tar", help="Include only what this older bundle does not have."),
    ] = None,
    system: Annotated[
        list[str] | None,
        typer.Option(
            "--system",
            metavar="NAME-RELEASE",
            help="System of the hosts, such as debian-12 or ubuntu-24.04. Default: this machine's.",
        ),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            "--kernel",
            metavar="RELEASE",
            help="Kernel of hosts on which NVIDIA's driver is built (`uname -r`).",
        ),
    ] = None,
    probe: Annotated[bool, typer.Option("--probe", help="Probe the hosts over SSH for these.")] = False,
) -> None:
    """Collect images, Debian packages and Python wheels of the plan for a closed network.

    Run it again after a stop: complete files are kept.
    """
    from headfirst.control.deployment.verbs.bundle import BundleOptions, bundle

    options = BundleOptions(
        inventories=run.inventories,
        extra_vars=run.extra_vars,
        output=file,
        weights=weights,
        sign=sign,
        since=since,
        systems=system or [],
        kernels=kernel or [],
        probe=probe,
    )
    with output.reporter() as reporter:
        written = bundle(options, reporter)
    print_made(written, as_json=output.as_json)


def print_made(written: WrittenBundle, *, as_json: bool) -> None:
    """The result of `deploy bundle`."""
    manifest = written.manifest
    if as_json:
        document: dict[str, Any] = {"event": "bundle", "path": str(written.path), "kept": written.existed}
        document |= {"signed": written.signed, "notes": written.notes}
        typer.echo(json.dumps(document | _document(manifest)))
        return
    done = "exists already and is complete" if written.existed else "is written"
    typer.echo(f"{written.path} {done}: bundle {manifest.id}, {amounts.size(_bytes(manifest))}")
    for line in _lines(manifest):
        typer.echo(f"  {line}")
    if manifest.what.since:
        typer.echo(f"  It contains the difference to bundle {manifest.what.since}, which is required too.")
    for note in written.notes:
        typer.echo(f"note: {note}", err=True)
    if not written.signed:
        typer.echo("note: The bundle is not signed: --sign ~/.ssh/id_ed25519 signs it.", err=True)


def print_sources(bundled: Bundled) -> None:
    """For `deploy plan --bundle`: what the plan takes from the bundle."""
    signer = f"signed by {bundled.bundle.signer}" if bundled.bundle.signer else "not signed"
    typer.echo(f"\nSources: bundle {bundled.manifest.id} alone ({bundled.bundle.path}, {shown(signer)})")
    for image in bundled.manifest.what.images:
        typer.echo(f"  image {shown(image.name)} ({shown(image.digest or image.id)})")
    for line in _lines(bundled.manifest):
        typer.echo(f"  {line}")


def sources(bundled: Bundled) -> dict[str, Any]:
    """The same for JSON."""
    bundle = bundled.bundle
    return {"path": str(bundle.path), "signer": bundle.signer} | _document(bundled.manifest)


def _document(manifest: BundleManifest) -> dict[str, Any]:
    what = manifest.what
    return {
        "id": manifest.id,
        "since": what.since,
        "bytes": _bytes(manifest),
        "files": len(what.carried),
        "images": {image.name: image.digest or image.id for image in what.images},
        "systems": [str(system) for system in what.needs.systems],
        "kinds": {kind: size for kind, (_, size) in _by_kind(manifest).items()},
    }


def _lines(manifest: BundleManifest) -> list[str]:
    systems = ", ".join(map(str, manifest.what.needs.systems))
    more = {"apt": f" for {systems}"}
    return [
        f"{_KINDS[kind]}{more.get(kind, '')}: {count} files, {amounts.size(size)}"
        for kind, (count, size) in _by_kind(manifest).items()
        if kind in _KINDS
    ]


def _by_kind(manifest: BundleManifest) -> Mapping[str, tuple[int, int]]:
    """Files and bytes by kind, also of those in older bundles."""
    totals: dict[str, tuple[int, int]] = {}
    for path, file in manifest.files.items():
        count, size = totals.get(kind := path.partition("/")[0], (0, 0))
        totals[kind] = (count + 1, size + file.bytes)
    return totals


def _bytes(manifest: BundleManifest) -> int:
    return sum(file.bytes for file in manifest.carried.values())
