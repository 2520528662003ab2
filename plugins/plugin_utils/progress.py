"""Reports the progress of long work to the caller of ansible-playbook."""

from __future__ import annotations

import json
import os
from pathlib import Path


def report(host: str, what: str, *, done: int = 0, total: int = 0, unit: str = "", note: str = "") -> None:
    """Append one JSON line to the file named by HEADFIRST_PROGRESS; without that variable nobody listens.

    `total` 0 means that the amount is not known. All hosts append to one file: a line is one write.
    """
    path = os.environ.get("HEADFIRST_PROGRESS")
    if not path:
        return
    record = {"host": host, "what": what, "done": done, "total": total, "unit": unit, "note": note}
    with Path(path).open("ab", buffering=0) as file:
        file.write(json.dumps(record).encode() + b"\n")
