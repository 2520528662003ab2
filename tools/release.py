#!/usr/bin/env python3
"""Makes dist/: wheel, sdist, collection, SBOM, JSON schemas, SHA256SUMS and its signature (docs/release.md).

The files come from HEAD alone and are the same bytes in any folder at any time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "py"))

from headfirst.common.errors import HeadfirstError, InputError  # noqa: E402
from headfirst.control.bundle.signature import sign  # noqa: E402  # the checkout's
from headfirst.control.machine.commands import run  # noqa: E402
from reference import outputs  # noqa: E402
from releasing import HINT, collection, sbom, source  # noqa: E402

NAMESPACE = "headfirst-release"
"""What the signature is for, as in `ssh-keygen -Y verify -n`."""


def main() -> int:
    arguments = parser().parse_args()
    try:
        release(ROOT, arguments.output, key=arguments.sign, tagged=not arguments.untagged)
    except HeadfirstError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def parser() -> argparse.ArgumentParser:
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument(
        "--untagged", action="store_true", help="a trial: no tag, and a changelog without a date"
    )
    cli.add_argument("--sign", type=Path, metavar="KEY", help="SSH key that signs SHA256SUMS")
    cli.add_argument("-o", "--output", type=Path, default=ROOT / "dist", help="folder of the files (dist)")
    return cli


def release(root: Path, output: Path, *, key: Path | None = None, tagged: bool = True) -> None:
    """Write the release of HEAD in `root` into `output`, whose former content is removed."""
    _refuse_others(output)
    source.refuse_changes(root)
    version = source.version(root, tagged=tagged)
    epoch = source.commit_time(root)
    with tempfile.TemporaryDirectory(prefix="headfirst-") as folder:
        files, made = Path(folder) / "source", Path(folder) / "made"
        made.mkdir()
        source.export(root, files)
        collection.build(files, made, epoch)
        _build_package(files, made, epoch)
        (made / f"headfirst-{version}.cdx.json").write_text(sbom.build(files, version, epoch), "utf-8")
        schemas = json.dumps(outputs.schemas(), indent=1, ensure_ascii=False)
        (made / f"headfirst-{version}-schemas.json").write_text(f"{schemas}\n", "utf-8")
        sums = "".join(
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
            for path in sorted(made.iterdir())
        )
        (made / "SHA256SUMS").write_text(sums)
        if key is not None:
            (made / "SHA256SUMS.sig").write_bytes(sign(sums.encode(), key, namespace=NAMESPACE))
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(made, output)
    for path in sorted(output.iterdir()):
        print(path)


def _build_package(files: Path, folder: Path, epoch: int) -> None:
    # hatchling builds the project of its working directory.
    argv = ["env", f"--chdir={files}", sys.executable, "-m", "hatchling", "build"]
    run(
        [*argv, "--target", "wheel", "--target", "sdist", "--directory", str(folder)],
        doing="Building wheel and sdist",
        hint=HINT,
        env=os.environ | {"SOURCE_DATE_EPOCH": str(epoch)},
    )


def _refuse_others(output: Path) -> None:
    """A folder that is replaced holds an earlier release, or nothing."""
    if output.exists() and not (output / "SHA256SUMS").is_file() and any(output.iterdir()):
        raise InputError("the folder holds other files", where=str(output), hint="Name another one with -o.")


if __name__ == "__main__":
    sys.exit(main())
