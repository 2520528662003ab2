"""How this machine's apt fetches, for a lab node: named files are copied, the rest must be reachable."""

from __future__ import annotations

import os
import re
from pathlib import Path

from headfirst.common.untrusted import without_password
from headfirst.control.lab.types import NodeConfig, is_loopback

FOLDER = "etc/headfirst-lab/apt"
"""Where a node keeps the copies, below its root."""

_OPTION = re.compile(r'(Acquire::\S+) "(.*)";')
_FILES = ("cainfo", "capath", "sslcert", "sslkey", "crlfile", "issuercert")
_PROGRAMS = ("proxy-auto-detect", "proxyautodetect")


def for_node(acquire: str) -> NodeConfig:
    """`acquire` is what `apt-config dump Acquire` prints on this machine."""
    node_settings = NodeConfig()
    for line in acquire.splitlines():
        match = _OPTION.fullmatch(line)
        option, value = match.groups() if match else ("", "")
        why = _unusable(option.rpartition("::")[2].lower(), value)
        if why:
            node_settings.left_out.append(f"apt's {option}: {without_password(value)} {why}")
        elif value and option.rpartition("::")[2].lower() in _FILES:
            name = f"{FOLDER}/{len(node_settings.files)}-{Path(value).name}"
            node_settings.files[name] = Path(value).read_bytes()
            node_settings.conf += f'{option} "/{name}";\n'
        else:
            node_settings.conf += f"{line}\n"
    return node_settings


def _unusable(kind: str, value: str) -> str:
    """Why a node cannot use the value; "" if it can."""
    if not value:
        return ""
    if kind in _PROGRAMS:
        return "is a program of this machine"
    if kind in _FILES and not (Path(value).is_file() and os.access(value, os.R_OK)):
        return "is not a file that can be read"
    return "is an address that only this machine reaches" if kind == "proxy" and is_loopback(value) else ""
