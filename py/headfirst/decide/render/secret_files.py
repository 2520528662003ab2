"""The files with secrets: which there are, and the script that makes them where they are used."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from headfirst.common import container_names as names
from headfirst.decide.containers.blanks import (
    ENVIRONMENT,
    Text,
    api_key_blank,
    blanks,
    environment,
    joined,
    secret_of,
)
from headfirst.decide.containers.spec import Container
from headfirst.decide.plan.types import Plan, PlannedReplica, PlannedRouter, PlannedService, Webui
from headfirst.decide.render.shell import FAIL, program

FOLDER = "secrets"
SCRIPT = "make-secrets.sh"

_FUNCTIONS = """\
secret() { # NAME PREFIX: makes the secret where it is not there yet
  local file=secrets/$1
  [ -s "$file" ] || printf '%s%s\\n' "$2" "$(od -An -N24 -tx1 /dev/urandom | tr -d ' \\n')" >"$file"
  check "$file"
}

given() { # NAME SETTING: one that people have
  [ -s "secrets/$1" ] || fail "secrets/$1 is not there: copy the file of $2 to it."
  check "secrets/$1"
}

value() { # NAME VARIABLE: one that it cannot make
  [ -e "secrets/$1" ] || fail "secrets/$1 is not there: write the value of $2 to it, on one line."
}

check() {
  [[ $(<"$1") =~ ^[A-Za-z0-9._~/+=][A-Za-z0-9._~/+=-]{7,199}$ ]] ||
    fail "$1 must have 8 to 200 letters, digits, or . _ ~ - / + = on one line."
}
"""


@dataclass(frozen=True)
class SecretFile:
    """`lines` of the file that a container reads at `path`; `name` is its name in the folder of secrets."""

    path: str
    lines: tuple[Text, ...]

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name


def of_replica(service: PlannedService, replica: PlannedReplica) -> SecretFile:
    """The file with the engine's API key."""
    path = names.engine_config(replica.nodes[0].container.name)
    return SecretFile(path, tuple(_line(f"{key}: ", text) for key, text in service.config_file.items()))


def of_env_file(part: PlannedRouter | Webui) -> SecretFile:
    """The env file of a container."""
    variables = environment("webui", part.secret_env) if isinstance(part, Webui) else {}
    return _env_file(part.container, variables | part.env_file)


def of_environment(service: PlannedService, replica: PlannedReplica) -> list[SecretFile]:
    """The env file of the ranks; none where they have no secret environment."""
    owner = "-".join(filter(None, (service.name or "engine", replica.role)))
    variables = environment(owner, replica.secret_env)
    return [_env_file(replica.nodes[0].container, variables)] if variables else []


def _env_file(container: Container, variables: Mapping[str, Text]) -> SecretFile:
    lines = tuple(_line(f"{name}=", text) for name, text in variables.items())
    return SecretFile(container.env_file or "", lines)


def scheduled(plan: Plan) -> list[SecretFile]:
    """Those of all replicas, and of the routers that divided services require."""
    replicas = [
        file
        for service in plan.services
        for replica in service.replicas
        for file in (of_replica(service, replica), *of_environment(service, replica))
    ]
    return replicas + [of_env_file(router) for each in plan.services for router in each.required_routers]


def key_file(service: PlannedService) -> str:
    """Where the script keeps the API key of a service."""
    return f"{FOLDER}/{secret_of(api_key_blank(service.name))}"


def _key_settings(plan: Plan) -> dict[str, str]:
    """Secrets that people have, with the setting that names the file of each on the controller."""
    return {
        PurePosixPath(key_file(service)).name: f"api_key_file={service.api_key_file}"
        for service in plan.services
        if service.api_key_file
    }


def make_script(header: Sequence[str], plan: Plan, files: Sequence[SecretFile]) -> str:
    """Makes each secret of the plan once, but for those that people have, and writes the files; mode 0600."""
    about = [
        "Makes secrets/ with mode 0600. It can be run again: an existing secret is kept, also one of yours",
        "(one line in its file). Hosts need the files of secrets/ that their own file here names.",
    ]
    names = sorted(_secrets(line for file in files for line in file.lines))
    settings = _key_settings(plan)
    commands = "".join(_command(name, settings) for name in names)
    return program(
        [*header, "", *about],
        FAIL,
        _FUNCTIONS,
        f'umask 077\ncd "$(dirname "$0")"\nmkdir -p {FOLDER}\nchmod 700 {FOLDER}\n{commands}',
        "".join(_write(file) for file in {file.name: file for file in files}.values()),
    )


def _command(name: str, settings: Mapping[str, str]) -> str:
    if name in settings:
        words = ["given", name, settings[name]]
    elif name.startswith(ENVIRONMENT):
        words = ["value", name, name.rpartition("-")[2]]
    else:
        words = ["secret", name, "sk-" if name.startswith("api-key") else ""]
    return f"{shlex.join(words)}\n"


def _line(before: str, text: Text, after: str = "") -> Text:
    return f"{before}{text}{after}" if isinstance(text, str) else [before, *text, after]


def _secrets(lines: Iterable[Text]) -> set[str]:
    return {name for line in lines for blank in blanks(line) if (name := secret_of(blank))}


def _write(file: SecretFile) -> str:
    lines = [joined(line, plain=shlex.quote, blank=_content) for line in file.lines]
    target = f"{FOLDER}/{shlex.quote(file.name)}"
    return f"rm -f {target}\nprintf '%s\\n' {' '.join(lines)} >{target}\n"


def _content(blank: str) -> str:
    return f'"$(<{FOLDER}/{shlex.quote(secret_of(blank) or "")})"'
