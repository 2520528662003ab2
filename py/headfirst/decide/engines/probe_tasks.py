"""What the probes of the engines share: each question in a process of its own, and what an error means.

It runs in an engine's image, with that image's Python (3.10 to 3.13): the standard library alone, nothing of
headfirst (probing.py sends it). A command's problem is a sentence of the engine's own; whatever else goes
wrong is no problem of the command, and is answered as `why` it was not asked.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn

SECONDS = 120
_AT_ONCE = 4
_LONGEST = 1000
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# Refusals, unless something that the container lacks is behind them.
_REFUSALS = (
    ValueError,
    AssertionError,
    NotImplementedError,
    argparse.ArgumentError,
    argparse.ArgumentTypeError,
)
# What a RuntimeError states where it is one, too.
_STATED = re.compile(
    r"unsupported|(?:not|n't) (?:yet )?support|can ?not found|been removed|must be|divisible", re.IGNORECASE
)
# Files of CUDA, of the checkpoint or of the hub that are not here; texts that nobody could read.
_LACKING = (ImportError, OSError, MemoryError, UnicodeError, json.JSONDecodeError)
_LACKING_MODULES = ("huggingface_hub", "modelscope", "requests", "httpx", "urllib3", "safetensors")
# With every GPU there: the driver, the network and the hub are the container's, not the command's.
_UNREACHED = re.compile(
    r"no (?:cuda|nvidia|hip)? ?(?:gpus?|devices?|accelerators?)\b.*(?:available|found|detected|visible)"
    r"|nvidia driver|driver (?:is )?(?:too old|version)|libcuda|cuda error:|cuda driver|out of memory|nvml"
    r"|failed to infer device|failed to be inspected|huggingface\.co|hugging ?face hub|offline mode"
    r"|local ip|network interface|connect(?:ion|ed)? (?:to|refused|error)|name resolution|timed out",
    re.IGNORECASE,
)
# Where a build for GPUs sees none, it may have said so in any of these words.
_OF_GPUS = re.compile(
    r"\b(?:gpus?|cuda|rocm|hip|nvidia|devices?|drivers?|capabilit(?:y|ies)|compute|sm_?\d+|hopper|blackwell|ampere"
    r"|kernels?|triton|flashinfer|flashattention|platforms?|accelerators?|backends?|invalid choice)\b",
    re.IGNORECASE,
)
_parser_errors: list[str] = []


class UnaskedError(Exception):
    """What could not be asked here, and why."""


def answer(
    request: Mapping[str, Any],
    *,
    engine: str,
    parts: Mapping[str, Callable[[], Any]],
    before: Sequence[str],
    check: Callable[[list[str]], None],
) -> None:
    """Answers a request on the real standard output; what the engine prints goes to standard error.

    `before` are the words right before those that `check` reads; it raises what the engine refuses.
    """
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")  # there is no network: ask for nothing
    unwritten = _write(request.get("files", {}))
    asked = {**parts, "cuda": _cuda, "nccl": _nccl} if request.get("answers") else {}
    tasks: list[Callable[[], dict[str, Any]]] = [partial(_told, part) for part in asked.values()]
    commands: list[dict[str, Any]] = []
    places = []
    for command in request.get("commands", []):
        words = behind(before, command["argv"])
        commands.append({"read": False, "why": unwritten or f"it has no {' '.join(before)}"})
        if words is not None and not unwritten:
            places.append(len(commands) - 1)
            tasks.append(partial(_checked, check, words, command.get("env", {})))
    results = in_processes(tasks)
    for place, result in zip(places, results[len(asked) :], strict=True):
        commands[place] = result
    told = {"answers": _document(engine, dict(zip(asked, results, strict=False)))} if asked else {}
    json.dump({**told, "commands": commands}, out)
    out.close()


def _write(files: Mapping[str, str]) -> str:
    """Writes the files; the reason where it cannot."""
    try:
        for path, text in files.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        return last_line(error)
    return ""


def behind(before: Sequence[str], command: Sequence[str]) -> list[str] | None:
    """The words of a command after `before`; None where these are not in it."""
    places = range(len(before), len(command) + 1)
    ends = (place for place in places if list(command[place - len(before) : place]) == list(before))
    place = next(ends, None)
    return None if place is None else list(command[place:])


def _document(engine: str, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What headfirst.decide.engines.answers reads."""
    document: dict[str, Any] = {"engine": engine, "unanswered": {}}
    for part, result in results.items():
        if result.get("value") is not None:
            document[part] = result["value"]
        for key, why in result.get("missing", {}).items():
            document["unanswered"][f"{part}.{key}"] = why
        if "why" in result:
            document["unanswered"][part] = result["why"]
    return document


def _told(part: Callable[[], Any]) -> dict[str, Any]:
    """{"value": what a part answers}, and "missing": the reason by the name of a table that it lacks."""
    value = part()
    return value if isinstance(value, Tables) else {"value": value}


class Tables(dict[str, Any]):
    """{"value": the tables that were read, "missing": the reason by the name of each other one}."""

    def __init__(self, tables: Mapping[str, Callable[[], Any]]) -> None:
        """Reads each; where none can be read, it raises what the last one raised."""
        read, missing = {}, {}
        for name, make in tables.items():
            try:
                read[name] = make()
            except Exception as error:  # whatever another version raises
                missing[name], last = last_line(error), error
        if not read:
            raise last
        super().__init__(value=read, missing=missing)


def _checked(
    check: Callable[[list[str]], None], words: list[str], variables: Mapping[str, str]
) -> dict[str, Any]:
    """{"problem": the engine's sentence, or None}, with `why` where the engine could not say."""
    os.environ.update(variables)
    original = argparse.ArgumentParser.error

    def recorded(self: argparse.ArgumentParser, message: str) -> NoReturn:
        _parser_errors.append(message)
        original(self, message)

    argparse.ArgumentParser.error = recorded  # type: ignore[method-assign]
    try:
        check(words)
    except (Exception, SystemExit) as error:  # whatever the engine raises
        told = judged(error, lacks_gpu())
        named = any(word.startswith("--quantization") for word in words)
        if "config file" in (told["problem"] or "") and not named:
            # The checkpoint's own method: its file was not brought.
            return {"problem": None, "why": told["problem"]}
        return told
    return {"problem": None}


def judged(error: BaseException, without_gpu: bool) -> dict[str, Any]:
    """{"problem": the sentence of a refusal}, or {"problem": None, "why": what could not be asked}.

    `without_gpu`: the engine is a build for GPUs and sees none.
    """
    error = _inner(error)
    text = _sentence(error)
    lacking = any(_lacks(each) for each in _chain(error))
    refuses = isinstance(error, (*_REFUSALS, SystemExit)) or (
        type(error) is RuntimeError and _STATED.search(text)
    )
    refused = refuses and not lacking and bool(text)
    if refused and not _UNREACHED.search(text) and not (without_gpu and _may_need_gpu(error, text)):
        return {"problem": text}
    return {"problem": None, "why": last_line(error)}


def _may_need_gpu(error: BaseException, text: str) -> bool:
    """Whether a GPU could have changed it; an assertion without a sentence states nothing of its reason."""
    return bool(_OF_GPUS.search(text)) or (isinstance(error, AssertionError) and not str(error))


def lacks_gpu() -> bool:
    """Whether torch is a build for GPUs, and sees none."""
    try:
        torch = importlib.import_module("torch")
        return bool(torch.version.cuda or torch.version.hip) and not torch.cuda.is_available()
    except Exception:  # it cannot be asked: as where there is none
        return True


def _lacks(error: BaseException) -> bool:
    return isinstance(error, _LACKING) or type(error).__module__.partition(".")[0] in _LACKING_MODULES


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from."""
    seen: set[int] = set()
    step: BaseException | None = error
    while step is not None and id(step) not in seen:
        seen.add(id(step))
        yield step
        step = step.__cause__ or (None if step.__suppress_context__ else step.__context__)


def _inner(error: BaseException) -> BaseException:
    """What a check inside pydantic's validation raised, or the error itself."""
    details = error.errors() if hasattr(error, "errors") and callable(error.errors) else []
    inner = details[0].get("ctx", {}).get("error") if details else None
    return _inner(inner) if isinstance(inner, BaseException) else error


def _sentence(error: BaseException) -> str:
    """One readable sentence; "" where the error has none."""
    if isinstance(error, SystemExit):
        text = error.code if isinstance(error.code, str) else (_parser_errors or [""])[-1]
    elif hasattr(error, "errors") and callable(error.errors):  # pydantic's ValidationError
        text = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
    else:
        text = str(error) or (assertion(error) if isinstance(error, AssertionError) else "")
    return plain(text)


def assertion(error: BaseException) -> str:
    """The assertion that failed, and where; "" for another error."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    path, line = Path(frames[-1].filename), frames[-1].lineno or 0
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return ""
    asserted = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    if not asserted:
        return ""
    return f"{ast.unparse(asserted[-1].test)} is not so ({path.name}, line {line})"


def plain(text: str) -> str:
    """The text in one line, without colours and the frames of a traceback."""
    text = _ANSI.sub("", text)
    if "Traceback (most recent call last)" in text:
        text = text.strip().splitlines()[-1]
    text = re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in text)).strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def last_line(error: BaseException) -> str:
    """An error's class and the last line of its text."""
    if isinstance(error, UnaskedError):
        return str(error)
    text = _sentence(error) if isinstance(error, SystemExit) else str(error)
    lines = plain(text.strip().splitlines()[-1]) if text.strip() else ""
    return plain(f"{type(error).__name__}: {lines}" if lines else type(error).__name__)


def in_processes(
    tasks: Sequence[Callable[[], dict[str, Any]]], seconds: float = SECONDS
) -> list[dict[str, Any]]:
    """What each task returns in a process of its own, and its `seconds`; `why` where it could not.

    No task has begun before: nothing that an engine imports is in the process that forks.
    """
    at_once = min(_AT_ONCE, len(os.sched_getaffinity(0)))
    results: list[dict[str, Any]] = [{} for _ in tasks]
    waiting = list(range(len(tasks)))[::-1]
    running: dict[int, tuple[int, IO[str], float]] = {}
    while waiting or running:
        while waiting and len(running) < at_once:
            place = waiting.pop()
            running[place] = (*_started(tasks[place]), time.monotonic())
        time.sleep(0.02)
        for place, (process, written, began) in list(running.items()):
            taken = time.monotonic() - began
            ended, status = os.waitpid(process, os.WNOHANG)
            if not ended and taken < seconds:
                continue
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)  # with all that it started
            if not ended:
                os.waitpid(process, 0)
            result = _result(written, status) if ended else {"why": f"it did not answer within {seconds:g} s"}
            results[place] = {"problem": None, **result, "seconds": round(taken, 1)}
            del running[place]
    return results


def _started(task: Callable[[], dict[str, Any]]) -> tuple[int, IO[str]]:
    """The number of a process, and the file that it writes its result to."""
    written = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - it is read when the process has ended
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        return process, written
    try:
        os.setsid()
        try:
            text = json.dumps(task(), default=str)
        except BaseException as error:  # an engine's package may raise anything
            text = json.dumps({"why": last_line(error)})
        written.write(text)
        written.flush()
    finally:
        os._exit(0)  # what the engine registered for its end is not for us


def _result(written: IO[str], status: int) -> dict[str, Any]:
    if os.WIFSIGNALED(status):
        return {"why": f"its process ended with signal {os.WTERMSIG(status)}"}
    written.seek(0)
    return dict(json.loads(written.read() or '{"why": "its process ended without an answer"}'))


def option(
    action: argparse.Action, types: Mapping[str, str], choices: Mapping[str, Sequence[Any]] | None = None
) -> dict[str, Any]:
    """One option of a parser: its spellings and what it takes.

    `types`: name of the function that parses a value -> its type in the document. `choices`: values by
    destination that the engine checks after its parser.
    """
    told: dict[str, Any] = {"flags": list(action.option_strings), "dest": action.dest}
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return told | {"type": "flag"}
    told["type"] = types.get(getattr(action.type, "__name__", "str"), "str")
    if action.nargs is not None:
        told["nargs"] = action.nargs
    values = (choices or {}).get(action.dest) or action.choices
    if values is not None:
        told["choices"] = sorted((value for value in values if value is not None), key=str)
    return told


def home(package: str) -> Path:
    """The folder of a package, which is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"this image's python3 has no package {package}")
    return Path(spec.origin).parent


def version(package: str) -> str:
    """The version of a package, without the build that a plus sign begins."""
    folder = home(package)
    for file in ("_version.py", "version.py"):
        if (folder / file).is_file():
            for name in ("__version__", "version"):
                for value in assigned(ast.parse((folder / file).read_text(encoding="utf-8")), name):
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        return value.value.partition("+")[0]
    return importlib.metadata.version(package).partition("+")[0]


def assigned(tree: ast.Module, name: str) -> Iterator[ast.expr]:
    """The values that are assigned to a name anywhere, those of the module first."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            yield node.value  # type: ignore[attr-defined]


def _cuda() -> str | None:
    cuda = importlib.import_module("torch").version.cuda
    return None if cuda is None else str(cuda)


def _nccl() -> str | None:
    torch = importlib.import_module("torch")
    if torch.version.cuda is None:
        return None
    return ".".join(map(str, importlib.import_module("torch.cuda.nccl").version()))
