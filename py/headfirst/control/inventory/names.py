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

OWN_PREFIXES = ("my_", "x_")
_RESEMBLES = 0.75
# What other tools call a setting of ours.
_ELSEWHERE = {
    "dtype": "engine_args",
    "gpu_count": "gpus",
    "gpu_model": "gpu",
    "gpu_type": "gpu",
    "host": "ansible_host",
    "hostname": "ansible_host",
    "image": "engine_image",
    "interface": "nic",
    "ip": "ansible_host",
    "model_dir": "weights_dir",
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
    "ssh_key": "ansible_ssh_private_key_file",
    "ssh_port": "ansible_port",
    "ssh_user": "ansible_user",
    "tp": "tensor_parallel",
    "tp_size": "tensor_parallel",
    "user": "ansible_user",
    "weights_folder": "weights_dir",
    "weights_path": "weights_dir",
}
# A name with one of these words changes what is served, so that a note on it would be too little.
_SERVING = re.compile(
    r"(?:^|_)(adapters?|autoscaling|batch|context|decode|disaggregat(?:ed|ion)|draft|experts?|kv|lora|"
    r"parallel(?:ism)?|prefill|quantization|replicas?|speculative|tokens)(?:_|$)"
)
_NOT_BUILT = {
    "autoscaling": "Headfirst does not change the number of copies by itself: set replicas=N.",
    **dict.fromkeys(
        ("prefill", "decode", "disaggregated", "disaggregation"),
        "Headfirst does not separate prefill and decode: replicas=N serves N copies that do both.",
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
    names: Mapping[str, str | None], used: Container[str], patterns: Sequence[str]
) -> tuple[str, ...]:
    """Raise for all names that resemble one of ours and are not; `names` has the place of each.

    A user's own variables pass: those that a template uses (`used`), those that match one of `patterns` or
    start with a prefix for that, and those that neither resemble a name of ours nor name what is served; each
    of the last gets a note.
    """
    known = SETTING_NAMES | role_options().keys()
    notes, wrong = [], []
    for name, place in sorted(names.items()):
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
        if meant := _meant(name, known):
            wrong.append((name, where, meant))
        else:
            notes.append(f"{where}: Headfirst does not use {name}")
    if wrong:
        raise _refusal(wrong)
    return tuple(notes)


def _refusal(wrong: Sequence[tuple[str, str, str]]) -> InputError:
    """The error on each (name, place, what was meant)."""
    (first, where, meant), *others = wrong
    own = f"For your own variable: start its name with {OWN_PREFIXES[0]}, or list it in own_variables."
    if not others:
        return InputError(f"unknown variable {first}", where=where, hint=f"{meant} {own}")
    places = ", ".join(f"{name} ({place})" for name, place, _ in others)
    answers = " ".join(f"{name}: {meant}" for name, _, meant in wrong)
    return InputError(f"unknown variable {first}, and {places}", where=where, hint=f"{answers} {own}")


def _meant(name: str, known: Collection[str]) -> str | None:
    """The sentence about what was meant; None where the name resembles nothing."""
    if right := _ELSEWHERE.get(name) or (name.startswith(_prefixes()) and setting_of(name)):
        return f"Did you mean {right}?"
    near = difflib.get_close_matches(name.lower(), sorted(known), cutoff=_RESEMBLES)
    if right := next((right for right in near if _alike(name.lower(), right)), None):
        return f"Did you mean {right}?"
    if flag := _flag(name):
        return f"Arguments of the engine are in one setting: engine_args='{flag} …'."
    if served := _SERVING.search(name.lower()):
        return _NOT_BUILT.get(
            served[1], f"A name with {served[1]} is a setting's: deploy variables lists all."
        )
    if name.startswith(_prefixes()):
        nearest = difflib.get_close_matches(name, sorted(known), n=1)
        return f"Did you mean {nearest[0]}?" if nearest else "All variables: deploy variables --roles"
    return None


def _alike(name: str, right: str) -> bool:
    """Whether each word resembles its counterpart: nginx_port is not a misspelled engine_port."""
    words, others = name.split("_"), right.split("_")
    if len(words) != len(others):
        return True
    pairs = zip(words, others, strict=True)
    return all(difflib.SequenceMatcher(None, *pair).ratio() >= _RESEMBLES for pair in pairs)


def _flag(name: str) -> str | None:
    """The flag of an engine, of its newest version, that a variable has the name of."""
    flag = f"--{name.lower().replace('_', '-')}"
    known = any(flag in engines.get(engine).specification.options for engine in engines.names())
    return flag if known else None


@cache
def _prefixes() -> tuple[str, ...]:
    """Names that start so are ours: roles' names, and the first words of the settings that have several."""
    roles = {f"{option['role']}_" for option in role_options().values()}
    return (*sorted(roles), "engine_", "webui_", "weights_", "model_", "lab_", "headfirst_")


def setting_of(name: str) -> str | None:
    """The setting that a role's variable follows: open_webui_port has webui_port, weights_model has model."""
    settings = (setting for setting in SETTING_NAMES if name.endswith(f"_{setting}"))
    return max(settings, key=len, default=None)
