"""Check that a default that stands in several places is the same in all of them.

Usage: python tools/role_defaults.py [--fix]
- Every role: a public variable stands in defaults/main.yml and in the entry point `main` of
  meta/argument_specs.yml; only a required one has no default. It carries the role's name as a prefix. Other
  entry points have the same default.
- The inventory's settings: a variable of a role that takes its value from a setting has the setting's default
  (`FOLLOWING`, and variables with the name of a setting).
- Pairs of variables that two roles have for one purpose (`EQUAL`).
- Documentation: a number beside the name of a setting, in a row or in parentheses, is its default.
With --fix what follows is written: the settings come first, then defaults/main.yml and the documentation of a
module. Exit code 1 when one differs, or with --fix when one is left that only a person can write.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from default_places import DefaultDifference, TextSpan, in_yaml, write, yaml_of
from headfirst.decide.cluster.ports import PROXY_METRICS_PORT
from headfirst.decide.cluster.settings import ClusterSettings, ServiceSettings

ROOT = Path(__file__).resolve().parent.parent
ROLES = ROOT / "roles"
MODULES = ROOT / "plugins" / "modules"
SETTINGS = ServiceSettings().model_dump() | ClusterSettings().model_dump()
SETTINGS["proxy_metrics_port"] = PROXY_METRICS_PORT
# Variables of roles and options of modules (MODULE.OPTION) whose default is made of a setting's.
FOLLOWING = {
    "comm_check_rendezvous_port": "{dist_port}",
    "engine_drain_timeout": "{drain_timeout}",
    "engine_ready_timeout": "{ready_timeout}",
    "engine_url": "http://127.0.0.1:{engine_port}",
    "nvidia_driver_allow_reboot": "{allow_reboot}",
    "open_webui_url": "http://127.0.0.1:{webui_port}",
    "rollout.drain_timeout": "{drain_timeout}",
    "rollout.ready_timeout": "{ready_timeout}",
    "router_url": "http://127.0.0.1:{router_port}",
    "weights_keep_fp8": "{keep_fp8}",
}
# Variables with the name of a setting and, in a role used alone, a default of their own.
ALONE = {
    "proxy_addresses": "a role does not know the address of its host",
    "proxy_port": "the setting depends on `tls`",
    "weights_fetch": "`auto` requires the hub's client and token on every host",
}
# One decision for both container engines.
EQUAL = {"podman_engine_log_max_size": "docker_engine_log_max_size"}
_CHAIN = 2  # a setting, the file that follows it, and what follows that
# What a page in both languages shows of a setting: 8000 (`router_port`) in a cell, a row of `router_port` and
# `8000`, and `hang_timeout` seconds (180) anywhere.
_SHOWN = [
    re.compile(r"(?<=[|,、]) *(?P<default>\d+) ?[(（]`(?P<name>\w+)`[)）]"),
    re.compile(r"^\| *`(?P<name>\w+)` *\| *`?(?P<default>[\w/.-]*\d[\w/.-]*)`? *\|", re.MULTILINE),
    re.compile(r"`(?P<name>\w+)`(?: seconds| ?秒)? ?[(（](?P<default>\d+)[)）]"),
]


def load(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; an absent or empty file is an empty mapping."""
    return (yaml.safe_load(path.read_text()) if path.exists() else None) or {}


def differences(role: Path) -> list[DefaultDifference]:
    """What does not agree in the folder of one role."""
    defaults_file, specs_file = role / "defaults" / "main.yml", role / "meta" / "argument_specs.yml"
    defaults = load(defaults_file)
    entry_points = load(specs_file).get("argument_specs", {})
    if "main" not in entry_points:
        return [DefaultDifference(f"{role.name}: meta/argument_specs.yml has no entry point main")]
    options = entry_points["main"].get("options", {})
    lines = [f"{key} is in defaults but not in argument_specs" for key in defaults.keys() - options.keys()]
    for key, option in options.items():
        if not key.startswith(f"{role.name}_"):
            lines.append(f"{key} lacks the prefix {role.name}_")
        if key in defaults and option.get("required"):
            lines.append(f"{key} is required, so its default can never be used")
        elif key in defaults and "default" not in option:
            lines.append(f"{key} has a default, which argument_specs does not tell")
        elif key not in defaults and not option.get("required"):
            lines.append(f"{key} is neither required nor in defaults")
    problems = [DefaultDifference(f"{role.name}: {text}") for text in sorted(lines)]
    for name, entry_point in entry_points.items():
        for key, option in entry_point.get("options", {}).items():
            told = "default" in option or name != "main"
            if key in defaults and told and option.get("default") != defaults[key]:
                keys = ("argument_specs", name, "options", key, "default")
                sentence = f"{key} defaults to {defaults[key]!r}, {name} says {option.get('default')!r}"
                problems.append(
                    DefaultDifference(f"{role.name}: {sentence}", in_yaml(specs_file, keys, defaults[key]))
                )
    return problems


def following_differences(defaults: Mapping[str, tuple[Path, Any]]) -> list[DefaultDifference]:
    """Defaults of roles and modules, with their files, that are not those of what they follow."""
    expected = {name: form.format_map(SETTINGS) for name, form in FOLLOWING.items()}
    same = SETTINGS.keys() & defaults.keys() - ALONE.keys()
    expected |= {name: "" if SETTINGS[name] is None else str(SETTINGS[name]) for name in same}
    expected |= {name: str(defaults[other][1]) for name, other in EQUAL.items()}
    problems = []
    for name, text in sorted(expected.items()):
        path, actual = defaults[name]
        if str(actual) != text:
            module, _, option = name.partition(".")
            keys = ("options", option, "default") if option else (module,)
            place = in_yaml(path, keys, text if isinstance(actual, str) else yaml.safe_load(text))
            problems.append(
                DefaultDifference(f"{name} defaults to {actual!r}, what it follows to {text!r}", place)
            )
    return problems


def page_differences(path: Path, settings: Mapping[str, Any]) -> list[DefaultDifference]:
    """Defaults on a page that are not those of the settings beside them."""
    text = path.read_text(encoding="utf-8")
    return [
        DefaultDifference(
            f"{name} is {match['default']}, its default {settings[name]}",
            TextSpan(path, *match.span("default"), str(settings[name])),
        )
        for form in _SHOWN
        for match in form.finditer(text)
        if (name := match["name"]) in settings and str(settings[name]) != match["default"]
    ]


def _defaults() -> Iterator[tuple[str, tuple[Path, Any]]]:
    """Variable of a role or MODULE.OPTION → its file and its default."""
    for path in sorted(ROLES.glob("*/defaults/main.yml")):
        yield from ((name, (path, default)) for name, default in load(path).items())
    for name in FOLLOWING:
        module, _, option = name.partition(".")
        if option:
            path = MODULES / f"{module}.py"
            options = yaml.safe_load(yaml_of(path)[1])["options"]
            yield name, (path, options.get(option, {}).get("default"))


def all_differences() -> list[DefaultDifference]:
    """What differs in this checkout."""
    defaults = dict(_defaults())
    problems = following_differences(defaults)
    problems += [item for role in sorted(ROLES.iterdir()) if role.is_dir() for item in differences(role)]
    pages = sorted(ROOT.glob("docs/**/*.md"))
    return problems + [item for page in pages for item in page_differences(page, SETTINGS)]


def main() -> int:
    """Print what differs, or write it; return the exit code."""
    problems = all_differences()
    for _ in range(_CHAIN if "--fix" in sys.argv else 0):
        write(item.place for item in problems if item.place)
        problems = all_differences()
    print("\n".join(map(str, problems)) or "Every default is the same in all places.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
