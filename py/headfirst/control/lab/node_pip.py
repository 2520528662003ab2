"""pip's settings of this machine, for a lab node: named files are copied, local folders are left out."""

from __future__ import annotations

import configparser
import io
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass

from headfirst.common.untrusted import without_password
from headfirst.control.lab.types import NodeConfig, is_loopback
from headfirst.control.pip_config import ENVIRONMENT, Settings, default_index

FOLDER = "etc/headfirst-lab/pip"
"""Where a node keeps the copies, below its root."""

_REQUIREMENTS = ("constraint", "build-constraint", "requirement")
_SOURCES = ("index-url", "extra-index-url", "find-links")
# Options whose value is a place on this machine: pip creates or reads it there, whatever it installs.
_PLACES = (
    *("build", "cache-dir", "dest", "dest-dir", "editable", "log", "log-file", "prefix", "python", "report"),
    *("root", "src", "target", "wheel-dir"),
)
_CERTIFICATE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
_PROXY_VARIABLES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_COMMENT = re.compile(r"(^|\s+)#.*$")
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
# Options in a line of a requirements file, by what their value names.
_NESTED = ("-r", "--requirement", "-c", "--constraint")
_LINKS = ("-i", "--index-url", "--pypi-url", "--extra-index-url", "-f", "--find-links", "-e", "--editable")


def for_node(settings: Settings, environment: Mapping[str, str]) -> NodeConfig:
    """The settings and what the usual variables add (certificates, a proxy), for pip on a node."""
    return _Translation(environment).translate(settings)


class _Translation:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._copies: dict[Path, str] = {}  # file here -> path on the node
        self._node_pip = NodeConfig()

    def translate(self, settings: Settings) -> NodeConfig:
        # A variable precedes every section here; on the node it must, too.
        variables = {option for section, option in settings if section == ENVIRONMENT}
        sections: dict[str, dict[str, str]] = {}
        for (section, option), value in settings.items():
            if section != ENVIRONMENT and option in variables:
                continue
            node_value = self._option(option, value)
            if node_value:
                sections.setdefault("global" if section == ENVIRONMENT else section, {})[option] = node_value
        self._add_from_variables({option for _, option in settings}, sections)
        parser = configparser.RawConfigParser()
        parser.read_dict({section: options for section, options in sections.items() if options})
        text = io.StringIO()
        parser.write(text)
        self._node_pip.conf = text.getvalue().strip() + "\n" if parser.sections() else ""
        return self._node_pip

    def _option(self, option: str, value: str) -> str:
        if option in _REQUIREMENTS:
            return "\n".join(filter(None, (self._file(option, name) for name in value.split())))
        if option in ("cert", "client-cert"):
            return self._certificate(option, value)
        if option in _SOURCES:
            return "\n".join(url for url in value.split() if self._reachable(option, url))
        if option == "proxy":
            return value if self._reachable(option, value) else ""
        if option in _PLACES:
            self._leave_out(option, value, "is a place on this machine")
            return ""
        return value

    def _reachable(self, option: str, url: str) -> bool:
        if _local(url, Path()) is not None and option != "proxy":
            self._leave_out(option, url, "is on this machine's disk")
            return False
        if is_loopback(url):
            self._leave_out(option, url, "is an address that only this machine reaches")
            return False
        return True

    def _file(self, option: str, name: str) -> str:
        path = _local(name, Path.cwd())
        if path is None:
            return name
        if not _is_readable_file(path):
            self._leave_out(option, name, "is not a file that can be read")
            return ""
        return "/" + self._copy_requirements(option, path)

    def _certificate(self, option: str, value: str) -> str:
        path = Path(value).expanduser()
        target = f"{FOLDER}/{option}.pem"
        if path.is_dir():
            parts = [file.read_bytes() for file in sorted(path.iterdir()) if _is_readable_file(file)]
            self._node_pip.files[target] = b"\n".join(
                dict.fromkeys(part for part in parts if b"CERTIFICATE-" in part)
            )
        elif _is_readable_file(path):
            self._node_pip.files[target] = path.read_bytes()
        else:
            self._leave_out(option, value, "is not a file that can be read")
            return ""
        return f"/{target}"

    def _copy_requirements(self, option: str, path: Path) -> str:
        """Copies the file and what it includes; returns where the node has it."""
        path = path.resolve()
        if path not in self._copies:
            # Known before its lines are read: files may include one another.
            self._copies[path] = f"{FOLDER}/{len(self._copies)}-{path.name}"
            text = path.read_text(encoding="utf-8-sig", errors="surrogateescape").replace("\\\n", "")
            lines = [self._line(option, path, line) for line in text.splitlines()]
            self._node_pip.files[self._copies[path]] = "".join(f"{line}\n" for line in lines if line).encode(
                errors="surrogateescape"
            )
        return self._copies[path]

    def _line(self, option: str, path: Path, line: str) -> str:
        line = _VARIABLE.sub(lambda match: self._environment.get(match[1], match[0]), line)
        line = _COMMENT.sub("", line).strip()
        if line.startswith("-"):
            return self._option_line(option, path, line)
        # `name @ URL`, or a path alone; a marker follows after a semicolon.
        target = line.partition(";")[0].partition("@")[2].strip() or line.partition(";")[0].strip()
        if target.lower().startswith("file:") or (
            not _URL.match(target) and ("/" in target or target.startswith(".") or target.endswith(".whl"))
        ):
            self._leave_out(option, line, f"(in {path}) is on this machine's disk")
            return ""
        return line

    def _option_line(self, option: str, path: Path, line: str) -> str:
        words = shlex.split(re.sub(r"^(-[rcief])(?=\S)", r"\1 ", line).replace("=", " ", 1))
        if len(words) != 2 or words[0] not in (*_NESTED, *_LINKS):
            return line
        name, value = words
        local = _local(value, path.parent)
        if local is None:
            return line
        if name in _NESTED and _is_readable_file(local):
            return f"{name} /{self._copy_requirements(option, local)}"
        why = "is not a file that can be read" if name in _NESTED else "is on this machine's disk"
        self._leave_out(option, line, f"(in {path}) {why}")
        return ""

    def _add_from_variables(self, options: set[str], sections: dict[str, dict[str, str]]) -> None:
        """What pip takes from variables of other programs; a node's processes do not have these."""
        variables = self._environment
        certificate = next((variables[name] for name in _CERTIFICATE_VARIABLES if variables.get(name)), "")
        if certificate and "cert" not in options and (node_value := self._certificate("cert", certificate)):
            sections.setdefault("global", {})["cert"] = node_value
        proxy = next((variables[name] for name in _PROXY_VARIABLES if variables.get(name)), "")
        if not proxy or "proxy" in options:
            return
        index = sections.get("global", {}).get("index-url") or default_index()
        excepted = {"no": variables.get("no_proxy") or variables.get("NO_PROXY") or ""}
        if proxy_bypass(urlsplit(index).netloc, excepted):
            return
        if self._reachable("proxy", proxy):
            sections.setdefault("global", {})["proxy"] = proxy

    def _leave_out(self, option: str, value: str, why: str) -> None:
        self._node_pip.left_out.append(f"pip's {option}: {without_password(value)} {why}")


def _local(value: str, base: Path) -> Path | None:
    """The path that a value names on this machine, or None for a URL of another scheme."""
    if value.lower().startswith("file:"):
        return Path(unquote(urlsplit(value).path))
    return None if _URL.match(value) or re.match(r"[a-z]+\+", value) else base / Path(value).expanduser()


def _is_readable_file(path: Path) -> bool:
    return path.is_file() and os.access(path, os.R_OK)
