"""Which variable names an inventory may have. Ansible ignores a misspelled one; we do not."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Container, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache

from headfirst.common.errors import InputError
from headfirst.control.inventory.variables import role_options
from headfirst.decide import engines
from headfirst.decide.cluster.settings import SETTING_NAMES
from headfirst.decide.engines import arguments
from headfirst.decide.engines.base import Engine

OWN_PREFIXES = ("my_", "x_")
_RESEMBLES = 0.75
# What other tools call a setting of ours.
_ELSEWHERE = {
    "api_port": "engine_port",
    "backend": "engine",
    "copies": "replicas",
    "draft": "draft_model",
    "dtype": "engine_args",
    "extra_args": "engine_args",
    "gpu_count": "gpus",
    "gpu_mem": "gpu_memory",
    "gpu_model": "gpu",
    "gpu_name": "gpu",
    "gpu_type": "gpu",
    "gpus_per_host": "gpus",
    "gpus_per_node": "gpus",
    "hf_token": "weights_hub_token",
    "host": "ansible_host",
    "hostname": "ansible_host",
    "image": "engine_image",
    "inference_engine": "engine",
    "interface": "nic",
    "ip": "ansible_host",
    "lora": "adapters",
    "lora_modules": "adapters",
    "lora_paths": "adapters",
    "loras": "adapters",
    "model_dir": "weights_dir",
    "model_name": "served_model_name",
    "modelname": "model",
    "models_dir": "weights_dir",
    "key": "ansible_ssh_private_key_file",
    "num_gpus": "gpus",
    "password": "ansible_password",
    "port": "engine_port",
    "pp": "pipeline_parallel",
    "pp_size": "pipeline_parallel",
    "private_key": "ansible_ssh_private_key_file",
    "revision": "model_revision",
    "shm": "shm_size",
    "speculative_draft_model_path": "draft_model",
    "speculative_model": "draft_model",
    "ssh_key": "ansible_ssh_private_key_file",
    "ssh_port": "ansible_port",
    "ssh_user": "ansible_user",
    "tp": "tensor_parallel",
    "tp_size": "tensor_parallel",
    "user": "ansible_user",
    "weights_folder": "weights_dir",
    "weights_path": "weights_dir",
}
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


# Names of settings and options of roles whose values are secrets, or may have them inside.
_SECRET = re.compile(r"(_env|_key|_keys|_proxy|_url|password|secret|token)$")


def without_secrets(given: str) -> str:
    """A value of -e to be shown in a command: as it was typed where it is one setting that is no secret."""
    name, _, _ = given.partition("=")
    known = name in SETTING_NAMES or name in role_options()
    public = known and not _SECRET.search(name) and not any(sign.isspace() for sign in given)
    return given if public or given.startswith("@") else f"{name}=…" if name.isidentifier() else "…"


def refuse_unknown(
    names: Mapping[str, str | None],
    used: Container[str],
    patterns: Sequence[str],
    engine_names: Collection[str],
) -> tuple[str, ...]:
    """Raise for all names that resemble one of ours and are not; `names` has the place of each.

    A user's own variables pass: those that a template uses (`used`), those that match one of `patterns` or
    start with a prefix for that, and those that neither resemble a name of ours nor name what is served; each
    of the last gets a note. `engine_names`: the engines of the inventory.
    """
    known = SETTING_NAMES | role_options().keys()
    notes, wrong = [], []
    for name, place in sorted(names.items(), key=_in_order):
        where = place or "extra variables (-e)"
        if name == "_raw_params":  # where Ansible puts the words of -e that are no KEY=VALUE
            raise InputError(
                "a word of -e is not KEY=VALUE",
                where=where,
                hint="Quote a value that has spaces: -e 'engine_args=\"--mem-fraction-static 0.8\"'.",
            )
        if name in known or name.startswith(("ansible_", *OWN_PREFIXES)):
            continue
        if name in used or any(fnmatchcase(name, pattern) for pattern in patterns):
            continue
        if meant := _meant(name, known, sorted(set(engine_names) & set(engines.names()))):
            wrong.append((name, where, meant))
        else:
            notes.append(f"{where}: Headfirst does not use {name}")
    if wrong:
        raise _refusal(wrong)
    return tuple(notes)


def _in_order(entry: tuple[str, str | None]) -> tuple[str, int, str]:
    """By file, line and name."""
    name, place = entry
    file, _, line = (place or "").rpartition(":")
    return (file, int(line), name) if line.isdigit() else (place or "", 0, name)


def _refusal(wrong: Sequence[tuple[str, str, str]]) -> InputError:
    """The error on each (name, place, what was meant)."""
    (first, where, meant), *others = wrong
    own = f"For your own variable: start its name with {OWN_PREFIXES[0]}, or list it in own_variables."
    if not others:
        return InputError(f"unknown variable {first}", where=where, hint=f"{meant} {own}")
    lines = [f"{name} ({place}): {answer}" for name, place, answer in wrong]
    return InputError(
        f"{len(wrong)} unknown variables: {', '.join(name for name, _, _ in wrong)}",
        where=where,
        hint="\n".join([*lines, own]),
    )


def _meant(name: str, known: Collection[str], engine_names: Sequence[str]) -> str | None:
    """The sentence about what was meant; None where the name resembles nothing."""
    if does := _GROUPS.get(name):
        return f"[{name}] is a group of the inventory: each host in it {does}."
    if right := _ELSEWHERE.get(name) or (name.startswith(_prefixes()) and setting_of(name)):
        return f"Did you mean {right}?"
    words = name.lower().count("_")
    of_roles = {role_name for role_name in known if role_name.count("_") == words}
    for names in (SETTING_NAMES, of_roles):
        near = difflib.get_close_matches(name.lower(), sorted(names), cutoff=_RESEMBLES)
        if right := next((right for right in near if _alike(name.lower(), right)), None):
            return f"Did you mean {right}?"
    if answer := _argument(name, engine_names):
        return answer
    if served := _SERVING.search(name.lower()):
        return _NOT_BUILT.get(served[1], "Headfirst has no such setting: deploy variables lists all.")
    if prefix := next((prefix for prefix in _prefixes() if name.startswith(prefix)), None):
        return f"Headfirst has no such setting: deploy variables {prefix} lists those that start so."
    return None


def _alike(name: str, right: str) -> bool:
    """Whether each word resembles its counterpart: nginx_port is not a misspelled engine_port."""
    words, others = name.split("_"), right.split("_")
    if len(words) != len(others):
        return True
    pairs = zip(words, others, strict=True)
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
    others = [engines.get(other) for other in engines.names() if other not in engine_names]
    has = next((other.title for other in others if _written(other, flags[0])), None)
    titles = " and ".join(engines.get(chosen).title for chosen in engine_names)
    return f"It is an argument of {has}, and {titles} has none of this name." if has else None


def _written(engine: Engine, flag: str) -> str | None:
    """How an inventory writes what `flag` does; None where the engine has neither it nor a counterpart."""
    options = engine.specification.options
    longer = [option for option in options if option.startswith(f"{flag}-")]
    known = flag if flag in options else arguments.counterpart(engine.specification, flag)
    known = known or (longer[0] if len(longer) == 1 else None)
    if not known:
        return None
    if owned := engine.specification.owned.get(options[known]["dest"]):
        return owned
    if refused := engine.specification.refused.get(options[known]["dest"]):
        return refused.why
    value = "" if options[known]["type"] == "flag" else " …"
    return f"Arguments of the engine are in one setting: engine_args='{known}{value}'."


@cache
def _prefixes() -> tuple[str, ...]:
    """Names that start so are ours: roles' names, and the first words of the settings that have several."""
    roles = {f"{option['role']}_" for option in role_options().values()}
    return (*sorted(roles), "engine_", "webui_", "weights_", "model_", "lab_", "headfirst_")


def setting_of(name: str) -> str | None:
    """The setting that a role's variable follows: open_webui_port has webui_port, weights_model has model.

    A text of a file follows the setting that names the file: engine_api_key has api_key_file.
    """
    settings = (setting for setting in SETTING_NAMES if name.endswith(f"_{setting.removesuffix('_file')}"))
    return max(settings, key=len, default=None)
