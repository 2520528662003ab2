"""Which variable names an inventory may have. Ansible ignores a misspelled one; we do not."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from headfirst.common.errors import InputError
from headfirst.control.inventory.decided import DECIDED
from headfirst.control.inventory.variables import role_options
from headfirst.decide import engines
from headfirst.decide.cluster.settings import PREFIX, SETTING_NAMES
from headfirst.decide.engines import arguments
from headfirst.decide.engines.base import Engine

_OWN = ("ansible_", "my_", "x_")
_RESEMBLES = 0.75
# A setting of ours → what other tools call it.
_ALIASES = {
    "adapters": "lora lora_modules lora_paths loras",
    "ansible_host": "host hostname ip",
    "ansible_password": "password",
    "ansible_port": "ssh_port",
    "ansible_ssh_private_key_file": "key private_key ssh_key",
    "ansible_user": "ssh_user user",
    "draft_model": "draft speculative_draft_model_path speculative_model",
    "engine": "backend inference_engine",
    "engine_args": "dtype extra_args",
    "engine_image": "image",
    "engine_port": "api_port port",
    "gpu": "gpu_model gpu_name gpu_type",
    "gpu_memory": "gpu_mem",
    "gpus": "gpu_count gpus_per_host gpus_per_node num_gpus",
    "model": "modelname",
    "model_revision": "revision",
    "nic": "interface",
    "pipeline_parallel": "pp pp_size",
    "replicas": "copies",
    "served_model_name": "model_name",
    "shm_size": "shm",
    "tensor_parallel": "tp tp_size",
    "weights_dir": "model_dir models_dir weights_folder weights_path",
    "weights_hub_token": "hf_token",
}
_ELSEWHERE = {alias: name for name, aliases in _ALIASES.items() for alias in aliases.split()}
# Groups whose names are taken for variables, and what a host in them does.
_GROUPS = {
    "decode": "runs a decode replica",
    "monitoring": "runs Prometheus and Grafana",
    "prefill": "runs a prefill replica",
    "router": "runs a router",
    "spares": "is a spare",
    "webui": "runs the chat page",
}
# A name with one of these words changes what is served, so that a note on it would be too little.
_SERVING = re.compile(
    r"(?:^|_)(adapters?|attention|autoscal(?:e|ing)|batch|caching|context|ctx|decode|"
    r"disaggregat(?:ed|ion)|draft|eagle|experts?|kv|lora|mtp|parallel(?:ism)?|precision|prefill|"
    r"quant(?:ization)?|replicas?|speculative|tokens)(?:_|$)"
)
_NOT_BUILT = {
    **dict.fromkeys(
        ("autoscale", "autoscaling"),
        "Headfirst does not change the number of copies by itself: set replicas=N.",
    ),
    **dict.fromkeys(
        ("prefill", "decode", "disaggregated", "disaggregation"),
        "prefill_replicas and decode_replicas divide prefill and decode: `deploy variables prefill` lists "
        "the settings of the first.",
    ),
}


_NO_SUCH = "Headfirst has no such setting: deploy variables lists all."
_PLANNED = "`deploy variables` lists the settings that the plan follows."
# What another program's variable of this name would leave open, or take from elsewhere, is no note's matter.
_PROTECTING = ("api_key_file", "bundle", "proxy", "tls")
EXTRA = "extra variables (-e)"
Place = tuple[str, str | None]
"""A name, and where it is set."""

# Names of settings and options of roles whose values are secrets, or may have them inside.
_SECRET = re.compile(r"(_env|_key|_keys|_proxy|_url|password|secret|token)$")


def without_secrets(variable: str) -> str:
    """A value of -e to be shown in a command: as it was typed where it is one setting that is no secret."""
    name, _, _ = variable.partition("=")
    is_setting = name.removeprefix(PREFIX) in SETTING_NAMES or name in role_options()
    public = is_setting and not _SECRET.search(name) and not any(sign.isspace() for sign in variable)
    return variable if public or variable.startswith("@") else f"{name}=…" if name.isidentifier() else "…"


def judged(
    names: Iterable[Place],
    used: Collection[str],
    patterns: Sequence[str],
    engine_names: Collection[str],
    prefix: str,
) -> tuple[list[InputError], list[str]]:
    """The errors on names that resemble one of ours, or that the plan decides, and notes on others.

    A user's own variables pass: those that a template uses (`used`), those that match one of `patterns` or
    start with a prefix for that, and those that neither resemble a name of ours nor name what is served; each
    of the last gets a note. Where settings start with `prefix`, so does one of a setting without it, and
    others resemble variables of roles alone. `engine_names`: the engines of the inventory.
    """
    chosen, wrong = sorted(set(engine_names) & set(engines.names())), []
    role_variables = {*role_options(), *used}
    notes: dict[str, str] = {}  # one for a name
    for name, place in names:
        where, answer = place or EXTRA, None
        what = f"unknown variable {name}"
        if name.startswith(_OWN):
            continue
        if name == "_raw_params":  # where Ansible puts the words of -e that are no KEY=VALUE
            what = "a word of -e is not KEY=VALUE"
            answer = "Quote a value that has spaces: -e 'engine_args=\"--mem-fraction-static 0.8\"'."
        elif name in DECIDED:
            what, setting = f"{name} is decided by the plan", _followed(name)
            answer = f"Write {prefix}{setting} instead." if setting else _PLANNED
        elif any(fnmatchcase(name, pattern) for pattern in patterns):
            continue
        elif prefix and name in SETTING_NAMES:
            what = f"{name} is ignored: settings here start with {prefix}"
            if name in _PROTECTING or where == EXTRA:
                what = f"{name} would be ignored: settings here start with {prefix}"
                answer = f"Write {prefix}{name}; for another program's, {prefix}own_variables={name}."
            elif name not in used:
                notes.setdefault(name, f"{where}: {what} ({prefix}{name})")
        elif name not in role_variables and name.removeprefix(prefix) not in SETTING_NAMES:
            answer = _meant(name, chosen, prefix)
            if not answer and not prefix:
                notes.setdefault(name, f"{where}: Headfirst does not use {name}")
        if answer:
            wrong.append(InputError(what, where=where, hint=answer))
    return wrong, list(notes.values())


def refuse(wrong: Iterable[InputError], inventory: Path, prefix: str, *, advise: bool) -> None:
    """Raise one error for all, by file and line; with `advise`, how variables of one's own pass."""
    each = {str(error): error for error in wrong}.values()
    errors = sorted(each, key=lambda error: in_order((error.what, error.where)))
    tip = f"For your own variable: start its name with my_, or list it in {prefix}own_variables."
    if not prefix:
        tip += f" Or write every setting of Headfirst as {PREFIX}NAME: then no other name is one."
    tip = tip if advise else ""
    if len(errors) == 1:
        raise InputError(errors[0].what, where=errors[0].where, hint=f"{errors[0].hint or ''} {tip}".strip())
    if errors:
        lines = [f"- {error.where}: {error.what}. {error.hint or ''}".rstrip() for error in errors]
        what = f"{len(errors)} variables are wrong:\n" + "\n".join(lines)
        raise InputError(what, where=str(inventory), hint=tip or None)


def in_order(entry: Place) -> tuple[str, int, str]:
    """By file, line and name."""
    name, place = entry
    file, _, line = (place or "").rpartition(":")
    return (file, int(line), name) if line.isdigit() else (place or "", 0, name)


def _meant(name: str, engine_names: Sequence[str], prefix: str = "") -> str | None:
    """The sentence about what was meant; None where the name resembles nothing."""
    if name.startswith(PREFIX):
        answer = _meant(name.removeprefix(PREFIX), engine_names) or _NO_SUCH
        return re.sub(
            r"(?<=Did you mean )\w+|\b\w+(?==)",
            lambda match: PREFIX + match[0] if match[0] in SETTING_NAMES else match[0],
            answer,
        )
    if prefix:
        return _near_role(name)
    if does := _GROUPS.get(name):
        return f"[{name}] is a group of the inventory: each host in it {does}."
    if right := _ELSEWHERE.get(name) or (name.startswith(_prefixes()) and setting_of(name)):
        return f"Did you mean {right}?"
    near = _near(name, SETTING_NAMES) or _near_role(name) or _argument(name, engine_names)
    if near:
        return near
    if served := _SERVING.search(name.lower()):
        return _NOT_BUILT.get(served[1], _NO_SUCH)
    if start := next((start for start in _prefixes() if name.startswith(start)), None):
        return f"Headfirst has no such setting: deploy variables {start} lists those that start so."
    return None


def _near_role(name: str) -> str | None:
    return _near(name, [other for other in role_options() if other.count("_") == name.count("_")])


def _near(name: str, candidates: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(name.lower(), sorted(candidates), cutoff=_RESEMBLES)
    right = next((right for right in near if _alike(name.lower(), right)), None)
    return f"Did you mean {right}?" if right else None


def _alike(name: str, right: str) -> bool:
    """Whether each word resembles its counterpart: nginx_port is not a misspelled engine_port."""
    words, right_words = name.split("_"), right.split("_")
    if len(words) != len(right_words):
        return True
    pairs = zip(words, right_words, strict=True)
    return all(difflib.SequenceMatcher(None, *pair).ratio() >= _RESEMBLES for pair in pairs)


def _argument(name: str, engine_names: Sequence[str]) -> str | None:
    """What to write where a variable is named like an engine's flag, or starts with an engine."""
    engine, _, rest = name.lower().partition("_")
    if engine in engines.names():
        setting = f"engine_{rest}"
        return f"Did you mean {setting if setting in SETTING_NAMES else 'engine_args'}?"
    word = name.lower().replace("_", "-")
    flags = (f"--{word}", f"--{word}-size", f"--enable-{word}")
    for chosen in map(engines.get, engine_names):
        if answer := next(filter(None, (_written(chosen, flag) for flag in flags)), None):
            return answer
    other_engines = [engines.get(other) for other in engines.names() if other not in engine_names]
    has = next((other.title for other in other_engines if _written(other, flags[0])), None)
    titles = " and ".join(engines.get(chosen).title for chosen in engine_names)
    return f"It is an argument of {has}, and {titles} has none of this name." if has and titles else None


def _written(engine: Engine, flag: str) -> str | None:
    """How an inventory writes what `flag` does; None where the engine has neither it nor a counterpart."""
    options = engine.specification.options
    longer = [option for option in options if option.startswith(f"{flag}-")]
    option_name = flag if flag in options else arguments.counterpart(engine.specification, flag)
    option_name = option_name or (longer[0] if len(longer) == 1 else None)
    if not option_name:
        return None
    if owned := engine.specification.owned.get(options[option_name]["dest"]):
        return owned
    if refused := engine.specification.refused.get(options[option_name]["dest"]):
        return refused.why
    value = "" if options[option_name]["type"] == "flag" else " …"
    return f"Arguments of the engine are in one setting: engine_args='{option_name}{value}'."


@cache
def _prefixes() -> tuple[str, ...]:
    """Names that start so are ours: roles' names, and the first words of the settings that have several."""
    roles = {f"{option['role']}_" for option in role_options().values()}
    return (*sorted(roles), "engine_", "webui_", "weights_", "model_", "lab_", "headfirst_")


def _followed(name: str) -> str | None:
    """The setting that a variable of a role follows, also one whose name is not like it."""
    return "http_proxy" if name == "weights_environment" else setting_of(name)


def setting_of(name: str) -> str | None:
    """The setting that a role's variable follows: open_webui_port has webui_port, weights_model has model.

    A text of a file follows the setting that names the file: engine_api_key has api_key_file.
    """
    settings = (setting for setting in SETTING_NAMES if name.endswith(f"_{setting.removesuffix('_file')}"))
    return max(settings, key=len, default=None)
