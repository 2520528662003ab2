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
_COMPILE_CACHE = f"{program_file('compile_cache', '').rpartition('-')[0]}-"
# Programs that are not Python answer in their place.
_OTHER_SERVERS = ("SGLANG_RUST_SERVER", "VLLM_USE_RUST_FRONTEND")


def as_planned(words: Sequence[str]) -> Sequence[str]:
    """A container's command without the program that brings it what was compiled before."""
    place = next((number for number, word in enumerate(words) if word.startswith(_COMPILE_CACHE)), 0)
    return [*words[: place - 1], *words[place + 1 :]] if place else words


def unchecked(words: Sequence[str]) -> Sequence[str]:
    """A container's command without the programs before it, also those of another version."""
    words, file = as_planned(words), FILE.rpartition("-")[0]
    place = next((number for number, word in enumerate(words) if word.startswith(f"{file}-")), -2)
    return words[place + 2 :]


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
