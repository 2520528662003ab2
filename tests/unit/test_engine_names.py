"""Nothing outside py/headfirst/decide/engines names an engine in code.

Comments, docstrings, examples of modules, pages (*.md) and the keys `source` and `producers` of the failure
rules may: they state where something was seen. LEAKS is what remains; remove the line of a file that names
none any more.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from headfirst.decide import engines

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("py/headfirst", "plugins", "roles", "playbooks", "templates")
SOURCES = {"source", "producers"}
EXAMPLES = "EXAMPLES"
# Text of people, and what is generated or drawn.
NOT_CODE = {".md", ".json", ".lock", ".in", ".safetensors", ".png", ".svg", ".pyc"}
NAMED = re.compile("|".join(engines.names()), re.IGNORECASE)
LEAKS = {"py/headfirst/decide/cluster/settings.py"}  # the default of `engine`


class _Loader(yaml.SafeLoader):
    """Reads Ansible's own tags as the text they hold."""


_Loader.add_multi_constructor("!", lambda loader, suffix, node: node.value)


def files() -> list[Path]:
    """What is examined, in one order."""
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]
    own = ROOT / "py/headfirst/decide/engines"
    return [path for path in found if own not in path.parents and path.suffix not in NOT_CODE]


def engine_names(path: Path) -> list[str]:
    """The pieces of code in `path` that name an engine."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".py":
        pieces = _python(text)
    elif path.suffix in (".yml", ".yaml"):
        pieces = (piece for page in yaml.load_all(text, _Loader) for piece in _scalars(page))
    else:
        pieces = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return [piece for piece in pieces if NAMED.search(piece)]


def _python(text: str) -> Iterator[str]:
    """Names and strings of a module, without comments and docstrings."""
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    lines = {
        number
        for node in ast.walk(tree)
        if isinstance(node, documented) and ast.get_docstring(node) is not None
        for number in _lines(node.body[0])
    }
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == EXAMPLES:
            lines |= _lines(node)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT and token.start[0] not in lines:
            yield token.string


def _lines(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or 0) + 1))


def _scalars(value: Any) -> Iterator[str]:
    """Keys and texts of a YAML page, without those that state a source."""
    if isinstance(value, dict):
        for key, below in value.items():
            if key not in SOURCES | {EXAMPLES}:
                yield str(key)
                yield from _scalars(below)
    elif isinstance(value, list):
        for below in value:
            yield from _scalars(below)
    elif isinstance(value, str):
        yield value


def test_no_engine_is_named_outside_the_engines() -> None:
    found = {str(path.relative_to(ROOT)): names for path in files() if (names := engine_names(path))}
    assert {name: names for name, names in found.items() if name not in LEAKS} == {}
    assert LEAKS - found.keys() == set(), "These name no engine any more: remove them from LEAKS."


def test_enough_is_examined() -> None:
    suffixes = {path.suffix for path in files()}
    assert {".py", ".yml", ".j2"} <= suffixes
    assert len(files()) > 300


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.py", '"""As SGLang does."""\nx = 1  # sglang 0.5\n', []),
        ("b.py", 'def f():\n    """Of vLLM."""\n    return "vllm serve"\n', ['"vllm serve"']),
        ("c.py", "from headfirst.decide.engines.lmdeploy import engine\n", ["lmdeploy"]),
        ("d.yml", "# vllm\n- fix: Lower it.\n  producers: {sglang: 0.4–}\n  source: 'sglang #1'\n", []),
        ("e.yml", "- fix: Restart SGLang.\n", ["Restart SGLang."]),
        ("f.j2", "# sglang\nExecStart=vllm serve\n", ["ExecStart=vllm serve"]),
    ],
)
def test_what_counts_as_naming(tmp_path: Path, name: str, text: str, expected: list[str]) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert engine_names(path) == expected
