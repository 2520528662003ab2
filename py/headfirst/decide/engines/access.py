"""Who may ask which path of an engine: the engine's command behind a check of keys (key_check.py).

SGLang, vLLM and LMDeploy each leave paths open that administer them. The check is in front of all their
paths, whatever starts their processes: Python imports it in each, and FastAPI is changed as it is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files

from headfirst.common.errors import InputError
from headfirst.decide.containers.spec import program_file
from headfirst.decide.engines import ray
from headfirst.decide.engines.base import Launch

CHECK = files(__package__).joinpath("key_check.py").read_text(encoding="utf-8")
FILE = program_file("key_check", CHECK)
# How the programs before a command begin, and how many words they take.
_BEFORE = {
    f"{program_file(name, '').rpartition('-')[0]}-": words
    for name, words in (("compile_cache", 1), ("key_check", 2))
}
# Programs that are not Python answer in their place.
_OTHER_SERVERS = ("SGLANG_RUST_SERVER", "VLLM_USE_RUST_FRONTEND")


def unchecked(words: Sequence[str]) -> Sequence[str]:
    """A container's command without the programs before it, also those of another version."""
    for beginning, length in _BEFORE.items():
        place = next((number for number, word in enumerate(words) if word.startswith(beginning)), None)
        words = words if place is None else words[place + length :]
    return words


def checked(launch: Launch, keys: str | None, variables: Mapping[str, str]) -> Launch:
    """The launch behind the check where it has the file `keys`. InputError where `variables` go past it."""
    if keys is None or keys not in launch.command or ray.WORKER in launch.command:
        return launch
    if other := next((name for name in _OTHER_SERVERS if variables.get(name, "0") not in ("", "0")), None):
        raise InputError(
            f"engine_env={other}: another server would answer, whose administrative paths need no key.",
            hint=f"Remove {other}.",
        )
    words = [*([launch.entrypoint] if launch.entrypoint else []), *launch.command]
    behind = replace(launch, command=[FILE, keys, *words], files={FILE: CHECK})
    if launch.entrypoint:
        return replace(behind, entrypoint="python3")
    return replace(behind, command=["python3", *behind.command])
