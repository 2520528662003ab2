"""The shell that runs a job on a node as a transient systemd unit, and the report that it prints.

The script goes in on stdin, so that a secret is in no argv and no log; it prints `key value` lines.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils.node_answer import named, parsed, printable

JOBS = "/var/lib/headfirst/jobs"
SECRETS = "/run/headfirst/jobs"
"""In memory: a job's secrets are gone after a power cut."""
LOG_LINES = 20
_LONGEST_NOTE = 200  # characters
_LONGEST_EXIT = 100  # characters
_PROGRESS = {
    **{name: {"type": "int", "min": 0, "required": False} for name in ("done", "total", "alive")},
    **{name: {"type": "str", "required": False} for name in ("unit", "note")},
}

_PRELUDE = r"""
running() {
    case "$(systemctl is-active "$unit")" in
        active|activating|deactivating|reloading) return 0 ;;
        *) return 1 ;;
    esac
}
fact() {
    if [ -f "$2" ]; then printf '%s %s\n' "$1" "$(tr -d '\r\n' <"$2")"; fi
}
report() {
    if [ -f "$dir/exit" ]; then
        echo 'state ended'
    elif running; then
        echo 'state running'
    elif [ -f "$dir/exit" ]; then
        echo 'state ended'  # between the two reads
    else
        echo 'state vanished'
    fi
    fact exit "$dir/exit"
    fact progress "$dir/progress.json"
    fact result "$dir/result.json"
    if [ -f "$dir/log" ]; then tail -n "$log_lines" "$dir/log" | sed 's/^/log /'; fi
}
wait_for() {
    left=$1
    while [ "$left" -gt 0 ] && [ ! -f "$dir/exit" ]; do
        sleep 0.1
        left=$((left - 1))
    done
    report
}
begin() {
    umask 077
    mkdir -p "$dir"
    if running; then
        if [ "$(cat "$dir/signature" 2>/dev/null)" = "$signature" ]; then
            echo 'attached yes'
            return 0
        fi
        systemctl stop "$unit"
    fi
    systemctl reset-failed "$unit" 2>/dev/null || :
    rm -f "$dir/exit" "$dir/progress.json" "$dir/result.json" "$dir/log"
    rm -f "$dir/environment"  # where earlier versions kept secrets
    mkdir -p "$secret_dir"  # now: the end of the unit before has removed it
    printf '%s' "$secrets" >"$secret_dir/environment"
    printf '%s' "$signature" >"$dir/signature"
    eval "$run" || { rm -rf "$secret_dir"; return 1; }
}
end() {
    if running; then
        systemctl stop "$unit"
        echo 'stopped yes'
    fi
    rm -f "$dir/exit" "$dir/environment"
    rm -rf "$secret_dir"
}
"""


@dataclass(frozen=True)
class Job:
    """What to run, for at most `time_limit_s` seconds (0: no limit).

    `secrets` are environment variables that only the unit sees.
    """

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    time_limit_s: int = 0

    @property
    def folder(self) -> str:
        """Where its progress, result and log are."""
        return f"{JOBS}/{self.name}"

    @property
    def secret_folder(self) -> str:
        """Where its secrets are while it runs."""
        return f"{SECRETS}/{self.name}"

    @property
    def unit(self) -> str:
        """Its systemd unit."""
        return f"headfirst-job-{self.name}.service"

    @property
    def signature(self) -> str:
        """Equal for equal work: a running unit with another signature is replaced, not joined."""
        work = [list(self.argv), sorted(self.environment.items()), sorted(self.secrets.items())]
        return hashlib.sha256(json.dumps(work).encode()).hexdigest()


@dataclass(frozen=True)
class JobReport:
    """What the node reported. `state` is running, ended, vanished (no result), or "" after a stop."""

    state: str = ""
    attached: bool = False
    stopped: bool = False
    exit: str = ""
    progress: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    log: Sequence[str] = ()

    @property
    def succeeded(self) -> bool:
        """Whether the program left with exit status 0."""
        return self.state == "ended" and self.exit.split()[1:] == ["exited", "0"]

    @property
    def timed_out(self) -> bool:
        """Whether systemd ended the program at its time limit."""
        return self.exit.split()[:1] == ["timeout"]


def start(job: Job, wait_s: float) -> str:
    """Start the job, or join it where it runs; report after `wait_s` seconds, or as soon as it ends."""
    return _script(job, f"begin && wait_for {_tenths(wait_s)}")


def poll(job: Job, wait_s: float) -> str:
    """Report after `wait_s` seconds, or as soon as the job ends."""
    return _script(job, f"wait_for {_tenths(wait_s)}")


def stop(job: Job) -> str:
    """End the job where it runs."""
    return _script(job, "end")


def parse(stdout: str) -> JobReport:
    """Read a report; other lines (a login banner) are passed over. ValueError where it is malformed."""
    facts: dict[str, Any] = {}
    log = []
    for line in stdout.splitlines():
        key, _space, value = line.partition(" ")
        if key == "log":
            log.append(printable(value))
        elif key in ("state", "exit"):
            facts[key] = printable(value)[:_LONGEST_EXIT]
        elif key in ("attached", "stopped"):
            facts[key] = value == "yes"
        elif key == "progress":
            facts[key] = _progress(parsed(value))
        elif key == "result":
            facts[key] = parsed(value)
    return JobReport(**facts, log=log)


def _progress(document: Mapping[str, Any]) -> dict[str, Any]:
    """The known values of a progress, which the node's program wrote; others are passed over."""
    progress = named({name: document[name] for name in document.keys() & _PROGRESS.keys()}, _PROGRESS)
    return {
        name: value.replace("\n", "?")[:_LONGEST_NOTE] if isinstance(value, str) else value
        for name, value in progress.items()
    }


def _tenths(seconds: float) -> int:
    return round(seconds * 10)


def _script(job: Job, action: str) -> str:
    values = {
        "unit": job.unit,
        "dir": job.folder,
        "secret_dir": job.secret_folder,
        "signature": job.signature,
        "log_lines": str(LOG_LINES),
        "secrets": "".join(f"{name}={_quoted(value)}\n" for name, value in job.secrets.items()),
        "run": shlex.join(_systemd_run(job)),
    }
    assignments = "\n".join(f"{name}={shlex.quote(value)}" for name, value in values.items())
    # A function, because a child that reads stdin would eat the rest of the script.
    return f"{_PRELUDE}\n{assignments}\nwork() {{ {action}; }}\nwork </dev/null\n"


def _systemd_run(job: Job) -> list[str]:
    log = f"append:{job.folder}/log"
    # $$ is systemd's escape of $: these variables are the shell's, which ExecStopPost gives it.
    words = "$$SERVICE_RESULT $$EXIT_CODE $$EXIT_STATUS"
    ended = f"cd {job.folder}; rm -rf {job.secret_folder}; echo {words} >exit.part; mv exit.part exit"
    environment = {
        **job.environment,
        "HEADFIRST_PROGRESS_FILE": f"{job.folder}/progress.json",
        "HEADFIRST_RESULT_FILE": f"{job.folder}/result.json",
    }
    return [
        "systemd-run",
        "--quiet",
        "--collect",
        f"--unit={job.unit}",
        f"--description=Headfirst job {job.name}",
        "--property=Type=exec",
        f"--property=StandardOutput={log}",
        f"--property=StandardError={log}",
        f"--property=EnvironmentFile={job.secret_folder}/environment",
        *([f"--property=RuntimeMaxSec={job.time_limit_s}"] if job.time_limit_s else []),
        f'--property=ExecStopPost=/bin/sh -c "{ended}"',
        *(f"--setenv={name}={value}" for name, value in environment.items()),
        "--",
        *(argument.replace("$", "$$") for argument in job.argv),
    ]


def _quoted(value: str) -> str:
    """A value as systemd's EnvironmentFile reads it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
    return f'"{escaped}"'
