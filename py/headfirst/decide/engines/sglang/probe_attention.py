"""Which architectures keep their attention divided among all ranks, whatever --attn-dp-size is.

Read from SGLang's source code; nothing of it is imported. A class with an attention layer reads either the
ranks of its group (attn_tp_size) or all ranks. What a class uses are the names in its code. Of several
classes the nearest count: Qwen3's model has Qwen2's as its base, and gives it other layers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import probe_tasks

ATTENTION = {"RadixAttention", "RadixLinearAttention"}
GROUP = {"attn_tp_size", "attn_tp_rank", "get_attention_tp_size", "attn_tp"}
PACKAGE = "sglang.srt.models."


class Definition(NamedTuple):
    """A class, a function or a value of a module of models."""

    module: str
    name: str
    node: ast.AST


class ModelModules:
    """The modules of a folder of models, by the names that they define and import."""

    def __init__(self, folder: Path) -> None:
        """Reads all files of `folder`."""
        self._names: dict[str, dict[str, Definition | tuple[str, str]]] = {}
        self._entries: dict[str, Definition] = {}
        trees = {
            ".".join(path.relative_to(folder).with_suffix("").parts): ast.parse(path.read_text())
            for path in sorted(folder.rglob("*.py"))
        }
        for module, tree in trees.items():
            self._names[module] = dict(_imported(tree)) | {
                definition.name: definition for definition in _defined(module, tree)
            }
        for module, tree in trees.items():
            for name in entry_classes(tree):
                if definition := self._resolved(module, name):
                    self._entries[name] = definition
        self._architectures = {(entry.module, entry.name): name for name, entry in self._entries.items()}
        self._uses: dict[tuple[str, str], list[Definition]] = {}

    def undivided(self) -> set[str]:
        """Architectures of which each language model has an attention layer that all ranks share."""
        names = set()
        for name, entry in self._entries.items():
            models = self._attention(entry, name)
            if models and all(False in divided for divided in models.values()):
                names.add(name)
        return names

    def _attention(self, entry: Definition, name: str) -> dict[str, set[bool]]:
        """Language model -> whether its nearest attention layers are divided by group."""
        # A definition, the class that uses it, and the last architecture on the way to it.
        level: list[tuple[Definition, ast.AST, str]] = [(entry, entry.node, name)]
        seen = set()
        while level:
            models: dict[str, set[bool]] = {}
            further = []
            for definition, user, above in level:
                key = definition.module, definition.name
                if key in seen:
                    continue
                seen.add(key)
                node, architecture = definition.node, self._architectures.get(key, above)
                if isinstance(node, ast.ClassDef):
                    if ATTENTION & _words(node):
                        models.setdefault(architecture, set()).add(_by_group(node, user))
                    user = node
                further += [(other, user, architecture) for other in self._used(definition)]
            if models:
                return models
            level = further
        return {}

    def _used(self, definition: Definition) -> list[Definition]:
        """What the definition names, of modules of models."""
        key = definition.module, definition.name
        if key not in self._uses:
            words = {inner.id for inner in ast.walk(definition.node) if isinstance(inner, ast.Name)}
            others = (self._resolved(definition.module, word) for word in sorted(words))
            self._uses[key] = [other for other in others if other]
        return self._uses[key]

    def _resolved(self, module: str, name: str) -> Definition | None:
        """What a name of a module is; None for what is of no module of models."""
        for _ in range(len(self._names)):  # imports of imports
            known = self._names.get(module, {}).get(name)
            if known is None or isinstance(known, Definition):
                return known
            module, name = known
        return None


def entry_classes(tree: ast.Module) -> Iterator[str]:
    """The names in `EntryClass` of a module: architectures."""
    for value in probe_tasks.assigned(tree, "EntryClass"):
        entries = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        yield from (entry.id for entry in entries if isinstance(entry, ast.Name))


def _imported(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    """(name, (module, its name there)) of what comes from other modules of models."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level == 1 or source.startswith(PACKAGE):
                module = source.removeprefix(PACKAGE)
                yield from ((alias.asname or alias.name, (module, alias.name)) for alias in node.names)


def _defined(module: str, tree: ast.Module) -> Iterator[Definition]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield Definition(module, node.name, node)
        elif isinstance(node, ast.Assign):  # such as the classes of a hybrid model's layers, by kind
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id != "EntryClass":
                    yield Definition(module, target.id, node.value)


def _by_group(node: ast.ClassDef, user: ast.AST) -> bool:
    """Whether the class reads its group's ranks; where an argument decides, whether the user gives it."""
    if not GROUP & _words(node):
        return False
    arguments = {
        argument.arg
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        for argument in (*method.args.args, *method.args.kwonlyargs)
        if "attn_tp" in argument.arg
    }
    keywords = {inner.arg for inner in ast.walk(user) if isinstance(inner, ast.keyword)}
    return not arguments or bool(arguments & keywords)


@cache
def _words(node: ast.AST) -> frozenset[str]:
    """The names, attributes and strings in a definition."""
    words = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            words.add(inner.id)
        elif isinstance(inner, ast.Attribute):
            words.add(inner.attr)
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            words.add(inner.value)
    return frozenset(words)


def refused(folder: Path) -> set[str]:
    """Architectures whose function in arg_groups/model_overrides raises where the attention has groups."""
    names: set[str] = set()
    for path in sorted(folder.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and any(map(_refuses_groups, ast.walk(node))):
                registered = (inner for mark in node.decorator_list for inner in ast.walk(mark))
                names |= {str(inner.value) for inner in registered if isinstance(inner, ast.Constant)}
    return names


def _refuses_groups(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Call)
        and isinstance(node.test.func, ast.Name)
        and node.test.func.id == "attn_dp_enabled_of"
        and any(isinstance(statement, ast.Raise) for statement in node.body)
    )
