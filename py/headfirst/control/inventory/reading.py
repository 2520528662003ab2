"""An inventory as Ansible reads it: hosts of our groups in order, values with places, logins."""

from __future__ import annotations

import codecs
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headfirst.common.errors import InputError
from headfirst.control.inventory.decided import DECIDED
from headfirst.control.inventory.variables import role_options
from headfirst.decide.cluster.settings import PREFIX, SERVICE_NAMES, SETTING_NAMES

# Variables of roles that the plan and its checks read.
_ROLE_VALUES = ("weights_port", "host_tuning_firewall", "host_tuning_closed_ports")
READER = Path(__file__).with_name("ansible_reader.py")


@dataclass(frozen=True)
class HostLine:
    """A host named in a section of an INI inventory."""

    group: str
    host: str
    file: str
    number: int  # from 1

    @property
    def where(self) -> str:
        """FILE:LINE."""
        return f"{self.file}:{self.number}"


@dataclass(frozen=True)
class HostReading:
    """One host: `where` has all its variables, `values` those of the settings, decrypted and templated.

    `written` has all names as the inventory writes them.
    """

    written: Mapping[str, str | None]
    where: Mapping[str, str | None]
    values: Mapping[str, Any]
    role_values: Mapping[str, Any]  # those of _ROLE_VALUES
    used: frozenset[str]  # names that its templates use
    login: Mapping[str, Any] = field(repr=False)  # options of Ansible's ssh and sudo plugins
    urls: tuple[str, ...]  # values, of the roles' variables too, that hold a URL


@dataclass(frozen=True)
class ServiceReading:
    """A group that sets `model`: its hosts in order, and the values of a service's settings as it has them.

    `on_hosts`: settings of a service that a host's own line sets.
    """

    hosts: list[str]
    values: Mapping[str, Any]
    where: Mapping[str, str | None]
    on_hosts: Mapping[str, str | None]


@dataclass(frozen=True)
class Reading:
    """What Ansible reads. `services` are by group. `own_groups`: other groups with hosts, in their order.
    `limited`: hosts that --limit leaves; None without it. `stated`: all hosts and groups with members
    and variables, as the inventory's own files have them, untemplated. `prefix`: what settings start with
    there; in `values` and `where` they have their plain names. `refused`: variables that cannot be read.
    """

    source: str  # the first inventory: the place of what no line states
    groups: Mapping[str, list[str]]
    own_groups: list[str]
    services: Mapping[str, ServiceReading]
    hosts: Mapping[str, HostReading]
    lines: tuple[HostLine, ...]
    limited: list[str] | None
    stated: Mapping[str, Any] = field(repr=False)
    prefix: str
    refused: Sequence[InputError]

    def place_of(self, host: str) -> str:
        """The last line that lists the host: that is the one too many."""
        return next((line.where for line in reversed(self.lines) if line.host == host), self.source)


def read(
    paths: Sequence[Path],
    extra_vars: Sequence[str],
    limit: str | None,
    texts: Mapping[Path, str] | None = None,
) -> Reading:
    """Ask Ansible's library, in a process of its own. Raises InputError with file and line.

    `texts` are read in the place of what the files have.
    """
    for path in paths:
        if not path.exists():
            raise InputError(f"no such inventory: {path}", hint=_suggest_inventory(path))
    for path in paths:
        _refuse_encoding(path)
    for item in extra_vars:
        if item.startswith("@") and not Path(item[1:]).expanduser().is_file():
            raise InputError(
                f"no such file: {item[1:]}", where=f"-e {item}", hint="-e @FILE reads variables from FILE."
            )
    roles = {key: option for key, option in role_options().items() if key not in SETTING_NAMES | DECIDED}
    answer = _ask(
        {
            **_request(paths, extra_vars, SETTING_NAMES),
            "prefix": PREFIX,
            "service_names": sorted(SERVICE_NAMES),
            "role_options": roles,
            "limit": limit,
            "texts": {str(path.absolute()): text for path, text in (texts or {}).items()},
        }
    )
    if error := answer.get("error"):
        raise _explained(error)
    prefix = answer["prefix"]
    hosts = {name: _host(host, prefix) for name, host in answer["hosts"].items()}
    lines = tuple(HostLine(*line) for line in answer["lines"])
    services = {
        name: ServiceReading(
            service["hosts"], *(_plain(service[part], prefix) for part in ("values", "where", "on_hosts"))
        )
        for name, service in answer["services"].items()
    }
    refused = [_explained(error) for error in answer["refused"]]
    fields = {name: answer[name] for name in ("groups", "own_groups", "limited", "stated", "prefix")}
    return Reading(str(paths[0]), services=services, hosts=hosts, lines=lines, refused=refused, **fields)


def _plain(settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """By the plain names of settings; in an inventory with a prefix a name without is no setting."""
    return {
        plain if (plain := name.removeprefix(prefix)) in SETTING_NAMES else name: value
        for name, value in settings.items()
        if not (prefix and name in SETTING_NAMES)
    }


def role_values(
    paths: Sequence[Path], extra_vars: Sequence[str], names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Values of these variables of roles by host; the role's default where the inventory has none."""
    answer = _ask(_request(paths, extra_vars, names))
    for error in filter(None, (answer.get("error"), *answer.get("refused", ()))):
        raise _explained(error)
    defaults = {name: role_options()[name]["default"] for name in names}
    return {name: defaults | host["values"] for name, host in answer["hosts"].items()}


def _host(answer: Mapping[str, Any], prefix: str) -> HostReading:
    of_roles = answer["of_roles"]
    defaults = {name: role_options()[name]["default"] for name in _ROLE_VALUES}
    stated = {name: of_roles[name] for name in _ROLE_VALUES if of_roles.get(name) is not None}
    return HostReading(
        answer["where"],
        _plain(answer["where"], prefix),
        _plain(answer["values"], prefix),
        defaults | stated,
        frozenset(answer["used"]),
        answer["login"],
        tuple(answer["urls"]),
    )


def _request(paths: Sequence[Path], extra_vars: Sequence[str], wanted: Iterable[str]) -> dict[str, Any]:
    """What each request of the reader has."""
    return {"inventories": [*map(str, paths)], "extra_vars": [*extra_vars], "wanted": sorted(wanted)}


def _ask(request: Mapping[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="headfirst-") as scratch:
        # -P: the folder of the program is no place to import from.
        command = [sys.executable, "-P", str(READER)]
        done = subprocess.run(
            command,
            input=json.dumps(request),
            capture_output=True,
            text=True,
            env=reader_environment(scratch),
            check=False,
        )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise InputError(
            "Ansible cannot read the inventory: " + (lines[-1] if lines else "no reason given"),
            where=request["inventories"][0],
            hint="Try `ansible-inventory --list -i` with this inventory.",
        )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def reader_environment(scratch: str) -> dict[str, str]:
    """The environment of the program READER; `scratch` is a folder for it."""
    return os.environ | {
        "LC_ALL": "C.UTF-8",  # Ansible refuses to start without UTF-8
        "ANSIBLE_LOCAL_TEMP": scratch,  # else it is made in HOME, which may be read-only
        "ANSIBLE_HOST_KEY_CHECKING": "True",  # as in the runs
        # An inventory that Ansible cannot parse is otherwise a warning and an empty list of hosts.
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "True",
        "ANSIBLE_NOCOLOR": "True",
    }


def _suggest_inventory(path: Path) -> str:
    ready = sorted(p for p in Path("inventories").glob("*.ini")) if Path("inventories").is_dir() else []
    listing = f"Here are: {', '.join(str(p) for p in ready)}. " if ready else ""
    return f"{listing}`deploy init {path.name}` writes a new one."


def _refuse_encoding(path: Path) -> None:
    """Editors of other systems write marks that Ansible takes for the name of the first group."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        head = file.read(4)
    if head.startswith(codecs.BOM_UTF8):
        raise InputError(
            "the file starts with a byte order mark, which Ansible does not skip",
            where=f"{path}:1",
            hint=f"Save it as UTF-8 without BOM, or: sed -i '1s/^\\xEF\\xBB\\xBF//' {path}",
        )
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(
            "the file is UTF-16, not UTF-8",
            where=f"{path}:1",
            hint=f"Convert it: iconv -f UTF-16 -t UTF-8 {path} -o NEW",
        )


def _explained(error: Mapping[str, str | None]) -> InputError:
    """The refusal with what to type; a line that may hold a password is not quoted."""
    what, where, hint = error["what"] or "", error["where"], error["hint"]
    if hint:
        return InputError(what, where=where, hint=hint)
    for part, better, advice in _COMPLAINTS:
        if part in what.lower():
            hint, what = advice, better or what
            break
    quoted = re.search(r"got: .*|'.*'", what)
    if quoted and _SECRET.search(_line_at(where)):
        what = what[: quoted.start()].rstrip(" ,:") + what[quoted.end() :]
    return InputError(
        f"Ansible cannot read the inventory: {what}",
        where=where,
        hint=hint or "A correct one to compare with: deploy init example.ini --example a100x4",
    )


def _line_at(where: str | None) -> str:
    path, _, number = (where or "").rpartition(":")
    if not number.isdigit() or not Path(path).is_file():
        return ""
    lines = Path(path).read_text(errors="replace").splitlines()
    return lines[int(number) - 1] if 0 < int(number) <= len(lines) else ""


_SECRET = re.compile(r"pass|secret|token|key", re.IGNORECASE)
# A part of Ansible's complaint, a better sentence where that one is for programmers, and what to type.
_COMPLAINTS = (
    ("tabs are usually invalid", "a tab in YAML", "YAML takes no tabs: indent with spaces."),
    (
        "expected key=value host variable",
        None,
        'Write NAME=VALUE after the host, quote a value with spaces (engine_args="--dtype half"), '
        "and leave out the space after a comma.",
    ),
    ("expected key=value", None, "Write NAME=VALUE in a section [GROUP:vars]."),
    ("no closing quotation", "a quote is not closed", "Close the quote at the end of the value."),
    (
        "host range must be",
        None,
        "Write a section as [head] with nothing but a # comment after it, and a range as node[01:16].",
    ),
    (
        "invalid literal for int",
        "a range of hosts is not of the form node[01:16]",
        "Write first and last number, with as many digits each: node[01:16].",
    ),
    (
        "not enough values to unpack",
        "a bracket is not closed",
        "Write a section as [head], and a range of hosts as node[01:16].",
    ),
    ("undefined group", None, "Write the group with its hosts, or correct its name."),
    (
        "section",
        None,
        "A section is [GROUP], such as [head], [workers] or [spares], [GROUP:vars] or [GROUP:children].",
    ),
    ("should be a dictionary", "the file is not a mapping of groups", "Start with `all:` or `head:`."),
    ("unknown plugin", None, "Install the collection that has this inventory plugin."),
    ("inventory script", None, "Run the script by hand with --list: it must print JSON."),
    ("yaml", None, "Check the indentation, quotes and brackets of this line and the one before it."),
)
