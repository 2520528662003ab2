"""The commit that is released: what it is called, and its files."""

from __future__ import annotations

import re
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import yaml
from headfirst.common.errors import InputError, NotReadyError

_HEADING = re.compile(r"^## (?P<version>\S+) (?:\((?P<open>unreleased)\)|- \d{4}-\d\d-\d\d)$", re.MULTILINE)
_PACKAGE = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)


def refuse_changes(root: Path) -> None:
    """InputError where the working tree differs from HEAD: a release is a commit."""
    changed = _git(root, "status", "--porcelain").decode().splitlines()
    if changed:
        raise InputError(
            f"{len(changed)} changed or untracked files, such as {changed[0][3:]}",
            where=str(root),
            hint="Commit them, or remove them: git status",
        )


def version(root: Path, *, tagged: bool) -> str:
    """The version of package, collection and changelog; InputError where they differ.

    `tagged`: the changelog must have a date, and a signed tag `vVERSION` must be at HEAD.
    """
    package = _PACKAGE.search((root / "py/headfirst/__init__.py").read_text("utf-8"))
    heading = _HEADING.search((root / "CHANGELOG.md").read_text("utf-8"))
    versions = {
        "py/headfirst/__init__.py": package[1] if package else None,
        "galaxy.yml": str(yaml.safe_load((root / "galaxy.yml").read_text("utf-8"))["version"]),
        "CHANGELOG.md": heading["version"] if heading else None,
    }
    if len(set(versions.values())) != 1 or package is None or heading is None:
        listed = ", ".join(f"{name}: {value or 'none'}" for name, value in versions.items())
        raise InputError(f"the versions differ ({listed})", hint="Write the same version into all three.")
    if tagged:
        if heading["open"]:
            raise InputError(
                f"{package[1]} is unreleased",
                where="CHANGELOG.md",
                hint=f"Write the date: ## {package[1]} - YYYY-MM-DD",
            )
        _verify_tag(root, f"v{package[1]}")
    return package[1]


def commit_time(root: Path) -> int:
    """Seconds since the epoch at which HEAD was committed."""
    return int(_git(root, "show", "--no-patch", "--format=%ct", "HEAD"))


def export(root: Path, folder: Path) -> None:
    """Write the files of HEAD into `folder`, and nothing else: no caches, no files that git ignores."""
    with tarfile.open(fileobj=BytesIO(_git(root, "archive", "HEAD"))) as archive:
        archive.extractall(folder, filter="data")


def _verify_tag(root: Path, tag: str) -> None:
    make = f"git tag --sign --message 'Headfirst {tag[1:]}' {tag}"
    try:
        at = _git(root, "rev-parse", "--verify", "--quiet", f"refs/tags/{tag}^{{commit}}")
    except NotReadyError:
        raise InputError(f"there is no tag {tag}", hint=f"{make}, or --untagged for a trial") from None
    if at != _git(root, "rev-parse", "HEAD"):
        raise InputError(f"the tag {tag} is not at HEAD", hint=f"git checkout {tag}")
    try:
        _git(root, "verify-tag", tag)
    except NotReadyError as error:
        raise InputError(
            f"the tag {tag} does not verify: {error.what}",
            hint=f"Set git up as in docs/release.md. To replace the tag: git tag --delete {tag} && {make}",
        ) from None


def _git(root: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise NotReadyError(lines[-1] if lines else f"git {arguments[0]} failed", where=str(root))
    return done.stdout
