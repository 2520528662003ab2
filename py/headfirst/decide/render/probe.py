"""Asks a replica whether it serves, with the Python of the engine's image: it exits 0 when it does."""

from __future__ import annotations

from headfirst.decide.plan.types import Readiness

TIMEOUT_S = 20
INTERVAL_S = 10
# Arguments: URL, file with the API key. The file has one line, and the key is its last word.
PROGRAM = f"""\
import sys, urllib.request
url, config = sys.argv[1:]
key = open(config).read().split()[-1]
asked = urllib.request.Request(url, headers={{"Authorization": "Bearer " + key}})
urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open(asked, timeout={TIMEOUT_S})
"""


def failures(seconds: int) -> int:
    """How many probes fail within so many seconds."""
    return max(3, -(-seconds // INTERVAL_S))


def url(address: str, port: int, readiness: Readiness) -> str:
    """What is asked at the address."""
    return f"http://{address}:{port}{readiness.path}"
