"""What pip is set to on this machine: its files and PIP_* variables, by pip's own rules of precedence.

Standard library only: tools/venv.sh reads the settings before anything is installed.
https://pip.pypa.io/en/stable/topics/configuration/
"""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from headfirst.common.errors import NotReadyError

ENVIRONMENT = ":env:"
# Options that state where packages come from and how they are fetched, not which ones and not where they go.
_SOURCE_OPTIONS = (
    *("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "proxy", "cert"),
    *("client-cert", "timeout", "default-timeout", "retries", "keyring-provider", "cache-dir"),
)
_NOT_OPTIONS = ("config-file", "version", "help")

Settings = Mapping[tuple[str, str], str]
"""(section, option) -> value. Sections are `global`, a command's name, or ENVIRONMENT for variables."""


def read(environment: Mapping[str, str], files: Sequence[Path] | None = None) -> dict[tuple[str, str], str]:
    """The settings; `files` in rising precedence stand for those that pip reads here.

    Raises NotReadyError where a file cannot be parsed: pip fails on it, too.
    """
    settings: dict[tuple[str, str], str] = {}
    for path in config_files(environment) if files is None else files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(path)
        except (configparser.Error, UnicodeDecodeError) as error:
            raise NotReadyError(
                f"pip's configuration cannot be read: {error}",
                where=str(path),
                hint="Correct the file: `python3 -m pip config debug` shows which files pip reads.",
            ) from None
        for section in parser.sections():
            settings |= {(section, _normalized(name)): value for name, value in parser.items(section)}
    variables = {
        name.removeprefix("PIP_"): value for name, value in environment.items() if name[:4] == "PIP_"
    }
    settings |= {(ENVIRONMENT, _normalized(name)): value for name, value in variables.items()}
    return {key: value for key, value in settings.items() if value.strip() and key[1] not in _NOT_OPTIONS}


def of_command(settings: Settings, command: str) -> dict[str, str]:
    """Values by option: a variable precedes the command's section, which precedes `global`."""
    options: dict[str, str] = {}
    for name in ("global", command, ENVIRONMENT):
        options |= {option: value for (section, option), value in settings.items() if section == name}
    return options


def default_index() -> str:
    """The index of pip where none is set, as its own help names it; "" where this Python has no pip."""
    environment = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "COLUMNS": "200"}
    argv = [sys.executable, "-m", "pip", "--isolated", "install", "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    match = re.search(r"\(default\s+(https?://[^\s)]+)\)", done.stdout)
    return match[1] if match else ""


def config_files(environment: Mapping[str, str]) -> list[Path]:
    """The files that pip of this Python reads, in rising precedence, whether or not they exist."""
    config_file = environment.get("PIP_CONFIG_FILE", "")
    if config_file == os.devnull:
        return []
    home = Path.home()
    folders = environment.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    files = [Path(folder, "pip", "pip.conf") for folder in folders.split(":") if folder] + [
        Path("/etc/pip.conf")
    ]
    if not (config_file and Path(config_file).exists()):
        user_folder = environment.get("XDG_CONFIG_HOME") or home / ".config"
        files += [home / ".pip" / "pip.conf", Path(user_folder, "pip", "pip.conf")]
    files.append(Path(sys.prefix, "pip.conf"))
    return [*files, Path(config_file)] if config_file else files


def _normalized(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def exact_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables for a pip that installs exact versions: of the settings, only those of sources count."""
    variables = {name: value for name, value in environment.items() if not name.startswith("PIP_")}
    for option, value in of_command(read(environment), "install").items():
        if option in _SOURCE_OPTIONS:
            variables[f"PIP_{option.upper().replace('-', '_')}"] = value
    return variables | {"PIP_CONFIG_FILE": os.devnull}


if __name__ == "__main__":
    # `python -m headfirst.control.pip_config PYTHON -m pip …` runs pip so.
    os.execve(sys.argv[1], sys.argv[1:], exact_environment(os.environ))  # noqa: S606  # what the caller names
