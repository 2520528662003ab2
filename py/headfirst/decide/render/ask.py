"""A script that waits until the services of the plan answer, and asks each one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from headfirst.decide.plan.types import Plan
from headfirst.decide.render.secret_files import key_file
from headfirst.decide.render.shell import ASK, FAIL, program

SCRIPT = "ask.sh"

_SERVES = """\
serves() { # KEY_FILE SECONDS URL BODY
  local end=$((SECONDS + $2)) answer=
  until answer=$(ask "$1" "$3" --header 'Content-Type: application/json' --data "$4" 2>&1); do
    [ "$SECONDS" -lt "$end" ] || fail "$3 does not answer after $2 s: $answer"
    sleep 5
  done
  printf '%s\\n' "$answer"
}
"""


def ask_script(header: Sequence[str], plan: Plan) -> str:
    """Asks at the addresses of the clients; it needs curl, and secrets/ of the same folder."""
    lines = []
    for service in plan.services:
        ready = service.readiness
        body = json.dumps(ready.probe_body)
        for url in service.urls:
            words = [key_file(service), str(ready.start_seconds), f"{url}{ready.probe_path}", body]
            lines.append(f"serves {shlex.join(words)}\n")
    about = "Waits until each service answers a request, and prints the answer."
    return program([*header, "", about], FAIL, ASK, _SERVES, 'cd "$(dirname "$0")"\n' + "".join(lines))
