"""Who may ask which path of an engine: the engine's command behind a check of keys (key_check.py).

SGLang, vLLM and LMDeploy each leave paths open that administer them. The check is in front of all their
paths, whatever starts their processes: Python imports it in each, and FastAPI is changed as it is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files

from headfirst.common.errors import InputError
from headfirst.decide.engines import ray
from headfirst.decide.engines.base import Launch

CHECK = files(__package__).joinpath("key_check.py").read_text(encoding="utf-8")
# Its arguments are the check, the file with the keys, and the command.
_RUN = """\
import os, sys, tempfile
_, check, keys, *command = sys.argv
folder = tempfile.mkdtemp()
with open(folder + "/sitecustomize.py", "w") as file:
    file.write(check)
folders = [folder, os.environ.get("PYTHONPATH")]
os.environ.update(HEADFIRST_KEYS=keys, PYTHONPATH=os.pathsep.join(filter(None, folders)))
os.execvp(command[0], command)
"""
# Programs that are not Python answer in their place.
_OTHER_SERVERS = ("SGLANG_RUST_SERVER", "VLLM_USE_RUST_FRONTEND")


def unchecked(words: Sequence[str]) -> Sequence[str]:
    """A container's command without the check, also one of another version."""
    title = CHECK.partition(";")[0]
    place = next((number for number, word in enumerate(words) if word.startswith(title)), -2)
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
    entrypoint, *run = "python3", "-c", _RUN, CHECK, keys, *words
    if launch.entrypoint:
        return replace(launch, entrypoint=entrypoint, command=run)
    return replace(launch, command=[entrypoint, *run])
