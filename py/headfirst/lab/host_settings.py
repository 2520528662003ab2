"""This machine's settings of apt and pip, carried into a node when it starts.

They are no part of the node image: mirrors, proxies and credentials are the machine's, not the recipe's.
"""

from __future__ import annotations

import configparser
import io
import os
import re
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from headfirst.errors import NotReadyError
from headfirst.lab import packages
from headfirst.lab.sudo import as_root
from headfirst.lab.types import USER_ID

# Taken as they are, with owner and mode: credentials, keys of the archives, certificates.
_PATHS = (
    "etc/apt/auth.conf",
    "etc/apt/auth.conf.d",
    "etc/apt/mirrors",
    "etc/apt/trusted.gpg",
    "etc/apt/trusted.gpg.d",
    "usr/local/share/ca-certificates",
)
_DISTRIBUTIONS = ("Debian", "Ubuntu")


def as_archives() -> list[bytes]:
    """The settings as tar archives to unpack at a node's root.

    Raises NotReadyError where apt on this machine knows no Debian or Ubuntu archive.
    """
    made = {
        "etc/apt/sources.list.d/headfirst-host.list": ("\n".join(apt_sources()) + "\n", 0o644),
        # A proxy's address may carry a password.
        "etc/apt/apt.conf.d/30headfirst-host": (apt_acquire(), 0o600),
    }
    archives = [archive(made)]
    if pip := pip_conf(_pip_files(), os.environ):
        # May carry a password, and both root and the user install with pip.
        archives.append(archive({"etc/pip.conf": (pip, 0o600)}, uid=USER_ID))
    existing = [path for path in _PATHS if Path("/", path).exists()]
    copied = subprocess.run(
        as_root(["tar", "-C", "/", "-c", "--dereference", *existing]), capture_output=True, check=True
    )
    return [*archives, copied.stdout]


def archive(files: Mapping[str, tuple[str, int]], uid: int = 0) -> bytes:
    """A tar archive of path -> (text, mode), all owned by `uid`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, (text, mode) in files.items():
            member = tarfile.TarInfo(path)
            data = text.encode()
            member.size, member.mode, member.uid, member.gid = len(data), mode, uid, uid
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def apt_sources() -> list[str]:
    """The distribution's own archives that this machine's apt uses, as sources.list lines.

    Archives of others are left out: a node is a bare server, and a role that adds the same archive with
    another key would make apt refuse both.
    """
    lines = _distribution_archives()
    if not lines:
        packages.apt_get("update")  # an image of a cloud or a container may come without any list
        lines = _distribution_archives()
    if not lines:
        raise NotReadyError(
            "apt on this machine knows no Debian or Ubuntu archive to make lab nodes from.",
            hint="Look at /etc/apt/sources.list and /etc/apt/sources.list.d, then run `apt-get update`.",
        )
    return lines


def apt_acquire() -> str:
    """How this machine's apt fetches (proxies, certificates, dates), as an apt.conf."""
    done = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=True)
    # Index targets belong to the packages installed here, not to the way of fetching.
    kept = [line for line in done.stdout.splitlines() if not line.startswith("Acquire::IndexTargets")]
    return "\n".join(kept) + "\n"


def pip_conf(files: Sequence[Path], environment: Mapping[str, str]) -> str:
    """pip's settings (files in rising precedence, then PIP_* variables) as one pip.conf; "" if none.

    Folders of this machine among the indexes are left out: a node cannot see them.
    """
    parser = configparser.RawConfigParser()
    parser.read(files)
    for name, value in sorted(environment.items()):
        key = name.removeprefix("PIP_").lower().replace("_", "-")
        if name.startswith("PIP_") and key != "config-file":
            for section in parser.sections():
                parser.remove_option(section, key)
            if not parser.has_section("global"):
                parser.add_section("global")
            parser.set("global", key, value)
    for section in parser.sections():
        for key in ("index-url", "extra-index-url", "find-links"):
            if parser.has_option(section, key):
                remote = [url for url in parser.get(section, key).split() if re.match("https?://", url)]
                parser.set(section, key, "\n".join(remote))
                if not remote:
                    parser.remove_option(section, key)
    text = io.StringIO()
    parser.write(text)
    return (
        text.getvalue().strip() + "\n"
        if any(parser.options(section) for section in parser.sections())
        else ""
    )


def _pip_files() -> list[Path]:
    home = Path.home()
    named = os.environ.get("PIP_CONFIG_FILE")
    files = [Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf")]
    files += [home / ".pip/pip.conf", home / ".config/pip/pip.conf"]
    return [*files, Path(named)] if named else files


def _distribution_archives() -> list[str]:
    form = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)|$(ORIGIN)"
    argv = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    lines = [line.rpartition("|") for line in done.stdout.splitlines()]
    # A node sees neither this machine's installation disc nor its folders.
    reached = [(line, origin) for line, _, origin in lines if line.startswith(("deb http", "deb mirror+"))]
    return list(dict.fromkeys(line for line, origin in reached if origin in _DISTRIBUTIONS))
