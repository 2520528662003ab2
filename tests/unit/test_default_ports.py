"""A test on lab nodes names no default port of the settings: it reads it there, or has a port of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from headfirst.decide.cluster.ports import PROXY_METRICS_PORT
from headfirst.decide.cluster.settings import ClusterSettings, ServiceSettings

ROOT = Path(__file__).resolve().parents[2]
DEFAULTS = (ServiceSettings().model_dump() | ClusterSettings().model_dump()).items()
PORTS = {value for name, value in DEFAULTS if name.endswith("_port") and value} | {PROXY_METRICS_PORT}
LITERAL = re.compile(rf"(?<![-\w.])(?:{'|'.join(map(str, sorted(PORTS)))})(?![\w.])")


@pytest.mark.parametrize("folder", ["molecule", "tests/browser", "tests/fresh", "tests/lab", "tests/long"])
def test_no_default_port_is_a_literal(folder: str) -> None:
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".yml", ".ini", ".sh")]
    assert files and len(PORTS) > 10
    literals = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if LITERAL.search(line)
    ]
    assert literals == []
