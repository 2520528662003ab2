"""A checkout of the working tree as a repository of its own, whose commit can be tagged and released."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import release as tool
from documented import ROOT
from releasing import collection, sbom, source

__all__ = [
    "SIGNER",
    "VERSION",
    "collection",
    "committed",
    "git",
    "made_key",
    "sbom",
    "set_up",
    "source",
    "tool",
]

VERSION = tool.source.version(ROOT, tagged=False)
SIGNER = "releases@example.org"
"""As in docs/release.md."""


def git(repository: Path, *arguments: str) -> str:
    """Runs git apart from the settings of this machine."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    argv = ["git", "-C", str(repository), "-c", "user.name=Test", "-c", "user.email=test@example.org"]
    done = subprocess.run([*argv, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def committed(folder: Path) -> Path:
    """The files of the working tree that git would add, as a commit in `folder`; the changelog has a date."""
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in listed:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    changelog = folder / "CHANGELOG.md"
    text = changelog.read_text("utf-8").replace(f"## {VERSION} (unreleased)", f"## {VERSION} - 2026-11-30", 1)
    changelog.write_text(text, "utf-8")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "All")
    return folder


def made_key(path: Path) -> Path:
    """A throw-away key pair."""
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", SIGNER, "-f", str(path)]
    subprocess.run(argv, check=True)
    return path


def set_up(repository: Path, key: Path, signers: Path) -> None:
    """What docs/release.md does once: git signs with `key`, and `signers` lists who may."""
    signers.write_text(f'{SIGNER} namespaces="git,headfirst-release" {key.with_suffix(".pub").read_text()}')
    git(repository, "config", "gpg.format", "ssh")
    git(repository, "config", "user.signingkey", str(key.with_suffix(".pub")))
    git(repository, "config", "gpg.ssh.allowedSignersFile", str(signers))
