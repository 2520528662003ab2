"""How apt on this machine fetches: the distribution's archives, proxies, certificates."""

from __future__ import annotations

import os
import subprocess
import threading

from headfirst.common.errors import NotReadyError
from headfirst.control.machine import packages

_DISTRIBUTIONS = ("Debian", "Ubuntu")
# Lab and images are made in threads side by side, and apt refuses a second update.
_LISTS = threading.Lock()


def sources() -> list[str]:
    """The distribution's own archives that this machine's apt uses, as sources.list lines.

    Archives of others are left out: a node is a bare server, and a role that adds the same archive with
    another key would make apt refuse both.
    """
    with _LISTS:
        lines = _distribution_archives()
        if not lines:
            packages.apt_get("update")  # an image of a cloud or a container may come without any list
            lines = _distribution_archives()
    if not lines:
        raise NotReadyError(
            "apt on this machine has no Debian or Ubuntu archive to make lab nodes from.",
            hint="Check /etc/apt/sources.list and /etc/apt/sources.list.d, then run `apt-get update`.",
        )
    return lines


def acquire() -> str:
    """How this machine's apt fetches (proxies, certificates, dates), as an apt.conf."""
    done = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=True)
    # Index targets belong to the packages installed here, not to the way of fetching.
    lines = [line for line in done.stdout.splitlines() if not line.startswith("Acquire::IndexTargets")]
    for scheme in ("http", "https"):
        # apt reads the variable itself, but sudo and mmdebstrap do not pass it on.
        proxy = os.environ.get(f"{scheme}_proxy", "")
        if proxy and not any(line.startswith(f"Acquire::{scheme}::Proxy ") for line in lines):
            lines.append(f'Acquire::{scheme}::Proxy "{proxy}";')
    return "\n".join(lines) + "\n"


def _distribution_archives() -> list[str]:
    form = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)|$(ORIGIN)"
    argv = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    lines = [line.rpartition("|") for line in done.stdout.splitlines()]
    # A node sees neither this machine's installation disc nor its folders.
    reached = [(line, origin) for line, _, origin in lines if line.startswith(("deb http", "deb mirror+"))]
    return list(dict.fromkeys(line for line, origin in reached if origin in _DISTRIBUTIONS))
