"""The service that the browser tests look at: the README's lab."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Service:
    """What `deploy up` says of the service that it brought up."""

    url: str
    model: str
    email: str
    password: str


def bring_up() -> Service:
    """Run `deploy up inventories/lab.ini`; nothing is changed where it already runs."""
    command = [str(ROOT / "deploy"), "up", str(ROOT / "inventories" / "lab.ini"), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    summary = json.loads(done.stdout.splitlines()[-1])
    secrets = json.loads(Path(summary["credentials"]).read_text())
    return Service(
        summary["chat_page"], summary["model"], secrets["webui_admin_email"], secrets["webui_admin_password"]
    )
