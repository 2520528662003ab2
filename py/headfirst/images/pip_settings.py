"""pip's settings of this machine (mirrors, proxies, certificates) for uv, which reads none of pip's files."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping

# pip's option -> uv's variable, and what separates several values there.
_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "no-index": ("UV_NO_INDEX", " "),
    "proxy": ("ALL_PROXY", " "),
    "cert": ("SSL_CERT_FILE", " "),
}


def uv_environment() -> dict[str, str]:
    """This process's environment, with pip's settings added for uv. A variable that is set already wins."""
    # As pip does: all indexes are equal, and the platform's certificates count. Hashes make that safe.
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_SYSTEM_CERTS": "true"}
    return found | translated(_pip_config()) | os.environ


def translated(config: Mapping[str, str]) -> dict[str, str]:
    """uv's variables for `config`, pip's options without their section."""
    return {
        variable: separator.join(config[option].split())
        for option, (variable, separator) in _VARIABLES.items()
        if config.get(option)
    }


def parsed(listing: str) -> dict[str, str]:
    """Options in what `pip config list` prints: a variable beats the command's section, that the global."""
    rank = {"global": 0, "install": 1, ":env:": 2}
    lines = [line.partition("=") for line in listing.splitlines() if "=" in line]
    values = [(*name.rpartition(".")[::2], ast.literal_eval(value)) for name, _, value in lines]
    known = [value for value in values if value[0] in rank]
    return {option: text for _, option, text in sorted(known, key=lambda value: rank[value[0]])}


def _pip_config() -> dict[str, str]:
    """Settings from the pip of this Python, or from the system's; none where neither is there."""
    for python in (sys.executable, "/usr/bin/python3"):
        argv = [python, "-m", "pip", "--disable-pip-version-check", "config", "list"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return parsed(done.stdout)
    return {}
