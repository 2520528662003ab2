"""torch as an engine finds it on a machine with the planned GPUs, and stand-ins for CUDA's packages.

`install` comes before the engine is imported, for its modules read the GPU when they are imported. Nothing is
computed: an engine that calls a kernel gets a mock, or an error.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
import triton
from triton.backends.compiler import GPUTarget

CUDA = "13.0"
ENGINES = Path(__file__).parents[3] / "py" / "headfirst" / "decide" / "engines"


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes a module that has every attribute, for each of the names and all below them."""

    def __init__(self, names: Sequence[str]) -> None:
        """`names`: packages, or modules of a package."""
        self._names = tuple(names)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec of a stand-in."""
        if any(name == known or name.startswith(f"{known}.") for known in self._names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        """A module that has every attribute."""
        module = MagicMock(name=spec.name)
        module.__spec__, module.__path__, module.__version__ = spec, [], "99.0.0"
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def install(gpu: Mapping[str, Any], absent: Sequence[str]) -> None:
    """torch.cuda reports `gpu`: name, memory_mib, capability [major, minor], count.

    `absent`: modules that only work on a GPU, or are not installed.
    """
    major, minor = gpu["capability"]
    total = gpu["memory_mib"] << 20
    properties = SimpleNamespace(
        name=gpu["name"],
        major=major,
        minor=minor,
        total_memory=total,
        multi_processor_count=132,
        warp_size=32,
        is_integrated=False,
    )
    answers = {
        "is_available": True,
        "is_initialized": False,
        "device_count": gpu["count"],
        "current_device": 0,
        "get_device_capability": (major, minor),
        "get_device_name": gpu["name"],
        "get_device_properties": properties,
        "mem_get_info": (total, total),
        "set_device": None,
        "init": None,
        "synchronize": None,
        "empty_cache": None,
        "is_bf16_supported": major >= 8,
    }
    torch.version.cuda = CUDA
    for name, value in answers.items():
        setattr(torch.cuda, name, lambda *_words, _value=value, **_options: _value)
    driver = MagicMock(name="triton's driver")  # triton's own loads the driver's library
    driver.get_current_target.return_value = GPUTarget("cuda", major * 10 + minor, 32)
    triton.runtime.driver.set_active(driver)
    sys.meta_path.insert(0, StandIns(absent))


@cache
def probe(engine: str) -> ModuleType:
    """The probe of an engine, with what it imports of ours (decide/engines/probing.py)."""
    for file in (ENGINES / "probe_tasks.py", *sorted((ENGINES / engine).glob("probe*.py"), reverse=True)):
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec and spec.loader
        sys.modules[file.stem] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def stand_in(names: Sequence[str]) -> None:
    """Stand-ins for packages that are not installed, from here on."""
    sys.meta_path.append(StandIns(names))


def answers(
    engine: str, question: Mapping[str, Any], answer: Callable[[list[str]], Mapping[str, Any]]
) -> list[Any]:
    """{"values": what `answer` returns} of each of the commands, or {"error": text, "at": file and line}.

    It gets the words that the engine's own parser reads, and the variables at the same place.
    """
    before = probe(engine).BEFORE
    return [
        _answer(sys.modules["probe_tasks"].behind(before, command), environment, answer)
        for command, environment in zip(question["commands"], question["environments"], strict=True)
    ]


def _answer(
    command: list[str], environment: Mapping[str, str], answer: Callable[[list[str]], Mapping[str, Any]]
) -> dict[str, Any]:
    try:
        with _same_environment():
            os.environ.update(environment)
            return {"values": dict(answer(command))}
    except (Exception, SystemExit) as error:  # whatever the engine refuses a command with
        last = traceback.extract_tb(_cause(error).__traceback__)[-1]
        return {"error": f"{type(error).__name__}: {error}", "at": f"{last.filename}:{last.lineno}"}


def _cause(error: BaseException) -> BaseException:
    """What a check of pydantic's raised, or the error itself."""
    details = error.errors() if hasattr(error, "errors") else []
    inner = details[0].get("ctx", {}).get("error") if details else None
    return inner if isinstance(inner, BaseException) else error


@contextmanager
def _same_environment() -> Iterator[None]:
    """An engine sets variables for the processes that it starts; the next command must not have them."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def question() -> Any:
    """The JSON in the file of the first argument."""
    return json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))


def write(answer: Any) -> None:
    """`answer` as JSON into the file of the second argument."""
    Path(sys.argv[2]).write_text(json.dumps(answer, default=str), encoding="utf-8")
