"""Check that a default that stands in several places is the same in all of them.

Usage: python tools/role_defaults.py
- Every role: a public variable stands in defaults/main.yml and in the entry point `main` of
  meta/argument_specs.yml; only a required one has no default. It carries the role's name as a prefix. Other
  entry points have the same default.
- Modules that run as an action: the action's arguments have the defaults of the module's documentation.
- The inventory's settings: a variable of a role that takes its value from a setting has the setting's default
  (`FOLLOWING`, and variables with the name of a setting).
- Pairs of variables that two roles have for one purpose (`EQUAL`).
- Documentation: a number beside the name of a setting, in a row or in parentheses, is its default.
Exit code 1 when one differs.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from headfirst.decide.cluster.ports import PROXY_METRICS_PORT
from headfirst.decide.cluster.settings import ClusterSettings, ServiceSettings

ROOT = Path(__file__).resolve().parent.parent
ROLES = ROOT / "roles"
PLUGINS = "ansible_collections.headfirst.serving.plugins"
# Variables of roles and options of modules (MODULE.OPTION) whose default is made of a setting's.
FOLLOWING = {
    "await_ranks.timeout": "{ready_timeout}",
    "comm_check_rendezvous_port": "{dist_port}",
    "engine_drain_timeout": "{drain_timeout}",
    "engine_ready_timeout": "{ready_timeout}",
    "engine_url": "http://127.0.0.1:{engine_port}",
    "nvidia_driver_allow_reboot": "{allow_reboot}",
    "open_webui_url": "http://127.0.0.1:{webui_port}",
    "proxy_metrics_port": f"{PROXY_METRICS_PORT}",
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
# `| 8000 (`router_port`) |`, with the parentheses of both languages.
_AFTER = re.compile(r"^\| *(\d+) *[(（]`(\w+)`[)）]", re.MULTILINE)
_BEFORE = re.compile(r"^\| *`(\w+)` *\| *`?(\d+)`? *\|", re.MULTILINE)
# `hang_timeout` seconds (180), anywhere.
_BESIDE = re.compile(r"`(\w+)`(?: seconds| ?秒)? ?[(（](\d+)[)）]")


def load(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; an absent or empty file is an empty mapping."""
    return (yaml.safe_load(path.read_text()) if path.exists() else None) or {}


def differences(role: Path) -> list[str]:
    """Sentences about what does not agree in the folder of one role."""
    defaults = load(role / "defaults" / "main.yml")
    entry_points = load(role / "meta" / "argument_specs.yml").get("argument_specs", {})
    if "main" not in entry_points:
        return [f"{role.name}: meta/argument_specs.yml has no entry point main"]
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
        elif option.get("default") != defaults.get(key):
            lines.append(f"{key} defaults to {defaults[key]!r}, argument_specs says {option['default']!r}")
    for name, entry_point in entry_points.items():
        for key, option in entry_point.get("options", {}).items() if name != "main" else ():
            if key in defaults and option.get("default") != defaults[key]:
                lines.append(f"{key} defaults to {defaults[key]!r}, {name} says {option.get('default')!r}")
    return [f"{role.name}: {text}" for text in sorted(lines)]


def action_differences(names: Iterable[str]) -> list[str]:
    """Sentences about actions whose arguments have other defaults than their modules' documentation."""
    lines = []
    for name in names:
        arguments = getattr(
            importlib.import_module(f"{PLUGINS}.action.{name}").ActionModule, "ARGUMENTS", None
        )
        for option, documented in _documented(name).items() if arguments else ():
            actual, default = arguments.get(option, {}).get("default"), documented.get("default")
            if actual != default:
                lines.append(f"{name}: {option} defaults to {default!r}, and to {actual!r} in the action")
    return lines


def setting_differences(defaults: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Sentences about defaults of roles and modules that are not those of the settings that they follow."""
    expected = {name: form.format_map(settings) for name, form in FOLLOWING.items()}
    same = settings.keys() & defaults.keys() - ALONE.keys()
    expected |= {name: "" if settings[name] is None else str(settings[name]) for name in same}
    return [
        f"{name} defaults to {defaults.get(name)!r}, the inventory's settings require {value!r}"
        for name, value in sorted(expected.items())
        if str(defaults.get(name)) != value
    ]


def pair_differences(defaults: Mapping[str, Any]) -> list[str]:
    """Sentences about variables of two roles that must have one default."""
    return [
        f"{name} defaults to {defaults[name]!r}, {other} to {defaults[other]!r}"
        for name, other in EQUAL.items()
        if defaults[name] != defaults[other]
    ]


def page_differences(path: Path, settings: Mapping[str, Any]) -> list[str]:
    """Sentences about numbers of a page that are not the defaults of the settings beside them."""
    text = path.read_text(encoding="utf-8")
    shown = [(name, number) for number, name in _AFTER.findall(text)]
    shown += _BEFORE.findall(text) + _BESIDE.findall(text)
    return [
        f"{path}: {name} is {number}, its default {settings[name]}"
        for name, number in shown
        if name in settings and str(settings[name]) != number
    ]


def _documented(module: str) -> dict[str, Any]:
    text = importlib.import_module(f"{PLUGINS}.modules.{module}").DOCUMENTATION
    options: dict[str, Any] = yaml.safe_load(text).get("options", {})
    return options


def _defaults(roles: Iterable[Path]) -> Iterator[tuple[str, Any]]:
    for role in roles:
        yield from load(role / "defaults" / "main.yml").items()
    for name in FOLLOWING:
        module, _, option = name.partition(".")
        if option:
            yield name, _documented(module).get(option, {}).get("default")


def main() -> int:
    """Print what differs; return the exit code."""
    roles = sorted(path for path in ROLES.iterdir() if path.is_dir())
    actions = sorted(path.stem for path in (ROOT / "plugins" / "action").glob("*.py"))
    settings = ServiceSettings().model_dump() | ClusterSettings().model_dump()
    lines = [text for role in roles for text in differences(role)]
    lines += action_differences(actions)
    defaults = dict(_defaults(roles))
    lines += setting_differences(defaults, settings) + pair_differences(defaults)
    lines += [text for page in sorted(ROOT.glob("docs/**/*.md")) for text in page_differences(page, settings)]
    print("\n".join(lines) or "Every default is the same in all places.")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
