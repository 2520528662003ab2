"""Bash: quoting, and the functions that several scripts share; and the probe of a replica in Python."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from headfirst.decide.containers.blanks import ADDRESS, CONFIG_FILE, HEAD_ADDRESS, Text, joined
from headfirst.decide.plan.types import PlannedService, Readiness, Scheduled
from headfirst.decide.render.files import comment

# What a script must set before it runs a rank.
VARIABLES = {
    HEAD_ADDRESS: "HEADFIRST_HEAD_ADDRESS",
    ADDRESS: "HEADFIRST_ADDRESS",
    CONFIG_FILE: "HEADFIRST_CONFIG_FILE",
}
RANK = "HEADFIRST_RANK"

FAIL = """\
fail() {
  printf 'error: %s\\n' "$1" >&2
  exit 1
}
"""

# Every shard that the model's index names must be there; a model without an index has its only file.
CHECKS = """\
check_model() {
  local folder=$1 index=$1/model.safetensors.index.json shard
  [ -r "$folder/config.json" ] || fail "$folder on $(hostname) has no config.json: bring the model first."
  if [ -r "$index" ]; then
    for shard in $(grep -o '"[^"/ ]*\\.safetensors"' "$index" | tr -d '"' | sort -u); do
      [ -s "$folder/$shard" ] || fail "$folder on $(hostname) lacks $shard: bring the whole model there."
    done
  else
    compgen -G "$folder/*.safetensors" >/dev/null || fail "$folder on $(hostname) has no weights."
  fi
}

check_cache() {
  { mkdir -p "$1" && [ -w "$1" ]; } ||
    fail "$1 on $(hostname) cannot be written. Render again with another folder: -e engine_cache_dir=…"
}
"""

# The key is in no argument list: printf is the shell's own.
ASK = """\
ask() { # KEY_FILE URL [CURL_OPTION...]
  local key_file=$1 url=$2
  shift 2
  printf 'Authorization: Bearer %s' "$(cat "$key_file")" |
    curl --silent --show-error --fail --noproxy '*' --max-time 60 --header @- "$@" "$url"
}
"""


def checks(service: PlannedService) -> str:
    """That a host has the service's weights, and may write its cache; with the functions of CHECKS."""
    lines = [f"check_model {shlex.quote(folder)}\n" for folder in service.model_folders]
    lines += [f"check_cache {shlex.quote(service.cache_dir)}\n"] if service.cache_dir else []
    return "".join(lines)


def program(header: Sequence[str], *parts: str) -> str:
    """A bash script: the header, strict mode, the parts."""
    return f"#!/usr/bin/env bash\n{comment(header)}set -euo pipefail\n\n" + "\n".join(parts)


def word(text: Text, variables: Mapping[str, str] = VARIABLES) -> str:
    """One argument, quoted; blanks are the shell's variables, by the names of the blanks."""
    return joined(text, plain=shlex.quote, blank=lambda name: f'"${variables[name]}"')


def command_line(words: Sequence[Text], indent: str = "", variables: Mapping[str, str] = VARIABLES) -> str:
    """A command with each option on a line of its own; `variables` as for `word`."""
    lines: list[list[str]] = [[]]
    for argument in words:
        if isinstance(argument, str) and argument.startswith("--") and lines[0]:
            lines.append([])
        lines[-1].append(word(argument, variables))
    return f" \\\n{indent}  ".join(" ".join(line) for line in lines)


def ranks(scheduled: Scheduled) -> str:
    """Becomes the process of the rank that $HEADFIRST_RANK names."""
    parts = [f'case "${RANK}" in\n']
    for number, rank in enumerate(scheduled.ranks):
        parts.append(f"{number})\n")
        parts += [f"  export {name}={word(text)}\n" for name, text in rank.environment.items()]
        words = [rank.entrypoint, *rank.command] if rank.entrypoint else rank.command
        # The script may come from standard input, which is not the engine's.
        parts.append(f"  exec {command_line(words, '  ')} </dev/null\n  ;;\n")
    parts.append(f'*) fail "There is no rank ${RANK}: the service has {len(scheduled.ranks)}." ;;\nesac\n')
    return "".join(parts)


PROBE_TIMEOUT_S = 20
PROBE_INTERVAL_S = 10
# Arguments: URL, file with the API key. The file has one line, and the key is its last word.
# Asks a replica whether it serves, with the Python of the engine's image: it exits 0 when it does.
PROBE = f"""\
import sys, urllib.request
url, config = sys.argv[1:]
key = open(config).read().split()[-1]
asked = urllib.request.Request(url, headers={{"Authorization": "Bearer " + key}})
urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open(asked, timeout={PROBE_TIMEOUT_S})
"""


def probe_failures(seconds: int) -> int:
    """How many probes fail within so many seconds."""
    return max(3, -(-seconds // PROBE_INTERVAL_S))


def probe_url(address: str, port: int, readiness: Readiness) -> str:
    """What is asked at the address."""
    return f"http://{address}:{port}{readiness.path}"
