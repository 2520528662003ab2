"""pip's settings of this machine (mirrors, proxies, certificates) for uv, which reads none of pip's files.

`python -m headfirst.control.machine.pip_settings UV ARGUMENTS…` runs uv with them. Standard library only, as
tools/venv.sh runs it before anything is installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headfirst.control import pip_config

# pip's option -> uv's variable, and what separates several values there. Constraints are left out: uv is run
# with exact versions and hashes only.
_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "no-index": ("UV_NO_INDEX", " "),
    "proxy": ("ALL_PROXY", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "client-cert": ("SSL_CLIENT_CERT", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
    "retries": ("UV_HTTP_RETRIES", " "),
}
_FOLDERS = ("extra-index-url", "find-links")
_WHOLE_NUMBERS = ("timeout", "default-timeout", "retries")  # pip takes fractions, uv does not


def uv_environment() -> dict[str, str]:
    """This process's environment, with pip's settings added for uv. A variable that is set already wins."""
    # As pip does: all indexes are equal, and the platform's certificates count. Hashes make that safe.
    defaults = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_SYSTEM_CERTS": "true"}
    return defaults | translated(pip_config.of_command(pip_config.read(os.environ), "install")) | os.environ


def translated(config: Mapping[str, str]) -> dict[str, str]:
    """uv's variables for `config`, pip's options without their section."""
    variables = {}
    for option, (variable, separator) in _VARIABLES.items():
        if values := [value for value in config.get(option, "").split() if _is_usable(option, value)]:
            variables[variable] = separator.join(values)
    return variables


def _is_usable(option: str, value: str) -> bool:
    if option in _WHOLE_NUMBERS:
        return value.isdigit()
    # pip ignores a folder that is not there; uv ends with an error.
    return option not in _FOLDERS or _exists(value)


def _exists(value: str) -> bool:
    if value.startswith("file:"):
        return Path(unquote(urlsplit(value).path)).exists()
    return "://" in value or Path(value).expanduser().exists()


if __name__ == "__main__":
    os.execve(sys.argv[1], sys.argv[1:], uv_environment())  # noqa: S606  # the program that the caller names
