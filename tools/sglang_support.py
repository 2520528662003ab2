#!/usr/bin/env python3
"""Write what one SGLang version supports as JSON, from its source code. Nothing of it is imported.

    python tools/sglang_support.py SITE/sglang py/headfirst/decide/engines/sglang

Quantisation methods have the lowest compute capability, and "checkpoint_only" where the method cannot
quantise a BF16 checkpoint at loading. Each architecture has a list of what it can do and what changes its
layout and memory; "no class" where a list of SGLang names one that it has no model class for.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import sglang_attention

# What the code asks about the platform: these are CUDA's answers. Every other platform is absent.
CUDA = {"is_cuda", "_is_cuda"}
# Methods by which a model gives a draft the states of its layers (configure_aux_hidden_state_capture).
_CAPTURES = (
    "set_eagle3_layers_to_capture",
    "set_dflash_layers_to_capture",
    "set_dspark_layers_to_capture",
)


def main() -> int:
    """Write support-<version>.json into the folder named second."""
    package, target = Path(sys.argv[1]), Path(sys.argv[2])
    code = (package / "_version.py").read_text()
    version = next(str(node.value.value) for node in ast.walk(ast.parse(code))
                   if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
                   and isinstance(node.value.value, str))  # fmt: skip
    srt = package / "srt"
    config = ast.parse((srt / "configs" / "model_config.py").read_text())
    overrides = ast.parse((srt / "arg_groups" / "overrides.py").read_text())
    pooling = _compared_strings(_function(config, "is_generation_model"))
    rerank = _assigned(config, "_cross_encoding_pooler_archs")
    reward = {name for name in pooling if "Reward" in name or "SequenceClassification" in name} - rerank
    models = dict(_models(srt / "models"))
    table = {
        "source": "models/*.py EntryClass, layers/quantization, configs/model_config.py, "
        "by tools/sglang_support.py",
        "quantizations": _quantizations(srt / "layers" / "quantization"),
        # Given by hand -> methods of checkpoints that it is accepted for.
        "compatible_quantizations": _literal(config, "compatible_quantization_methods"),
        # Values of --moe-a2a-backend that spread the experts over all tensor ranks.
        "spanning_exchanges": sorted(_assigned(overrides, "_A2A_EP_SPANNING_BACKENDS")),
    }
    abilities = {
        # With --is-embedding, also every model class whose forward can return a pooled vector.
        "embedding": (pooling | _with(models, "get_embedding")) - reward - rerank,
        "reward": reward,
        "rerank": rerank,
        "pooling_only": pooling,
        "multimodal": _assigned(config, "multimodal_model_archs"),
        "pipeline": _with(models, "pp_proxy_tensors"),
        # What can be the target of a draft of EAGLE3, and of one of DFlash or DSpark.
        "eagle3": _with(models, _CAPTURES[0]),
        "dflash": _with(models, _CAPTURES[1]) | _with(models, _CAPTURES[2]),
        # How the memory is divided: a pool of their own for layers with a window; recurrent states that the
        # prefix cache tracks; images that are read only when asked; prefill graphs although there are images.
        "window_pool": _assigned(config, "hybrid_swa_archs"),
        "tracked_states": _assigned(overrides, "_MAMBA_EXTRA_BUFFER_ARCHS"),
        "images_when_asked": _assigned(config, "mm_disabled_models"),
        "images_with_prefill_graphs": _assigned(
            config, "multimodal_breakable_cuda_graph_supported_model_archs"
        ),
        "undivided_attention": sglang_attention.ModelModules(srt / "models").undivided()
        | sglang_attention.refused(srt / "arg_groups" / "model_overrides"),
    }
    named = {*models}.union(*abilities.values())
    abilities = {"no class": named - {*models}, **abilities}
    rows = {name: [can for can, names in abilities.items() if name in names] for name in sorted(named)}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in table.items()]
    listed = [f"  {json.dumps(name)}: {json.dumps(can)}" for name, can in rows.items()]
    lines.append(' "architectures": {\n' + ",\n".join(listed) + "\n }")
    path = target / f"support-{version}.json"
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{path}: {len(models)} architectures, {len(table['quantizations'])} quantisations")
    return 0


def _models(folder: Path) -> Iterator[tuple[str, set[str]]]:
    """(architecture, the arguments of its forward, and which of _CAPTURES it has) of every EntryClass."""
    trees = [ast.parse(path.read_text()) for path in sorted(folder.glob("*.py"))]
    classes = _classes(trees)
    for tree in trees:
        for name in sglang_attention.entry_classes(tree):
            forward = _method(name, "forward", classes)
            arguments = {argument.arg for argument in forward.args.args} if forward else set()
            yield name, arguments | {method for method in _CAPTURES if _method(name, method, classes)}


def _classes(trees: Iterable[ast.Module]) -> dict[str, ast.ClassDef]:
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}


def _with(models: dict[str, set[str]], argument: str) -> set[str]:
    return {name for name, arguments in models.items() if argument in arguments}


def _quantizations(folder: Path) -> dict[str, dict[str, int | bool]]:
    """Method -> {"min_capability": 75, "checkpoint_only": true} on CUDA."""
    classes = _classes(ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py")))
    registry = ast.parse((folder / "__init__.py").read_text())
    methods: dict[str, str] = {}
    for statement in registry.body:
        if isinstance(statement, ast.If) and not _true(statement.test, ""):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Dict) and not _is_for_cpus(statement):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(value, ast.Name):
                        methods[str(key.value)] = value.id
    quantizations: dict[str, dict[str, int | bool]] = {}
    for name, class_name in sorted(methods.items()):
        capability = _capability(class_name, name, classes)
        if capability:  # 0 is what methods of other platforms answer
            quantizations[name] = {"min_capability": capability}
            if _checkpoint_only(class_name, classes):
                quantizations[name]["checkpoint_only"] = True
    return quantizations


def _is_for_cpus(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id.startswith("CPU_") for target in statement.targets
    )


def _checkpoint_only(class_name: str, classes: dict[str, ast.ClassDef]) -> bool:
    """model_loader/weight_utils.py, get_quant_config: without a file that describes how the checkpoint is
    quantised, the class is made without arguments, and only where it names no such file."""
    files = _method(class_name, "get_config_filenames", classes)
    if files and any(isinstance(node, ast.List) and node.elts for node in ast.walk(files)):
        return True
    made = _method(class_name, "__init__", classes)
    return made is not None and len(made.args.args) - 1 > len(made.args.defaults)


def _method(class_name: str, name: str, classes: dict[str, ast.ClassDef]) -> ast.FunctionDef | None:
    """The method of the class or of its nearest base that has it."""
    definition = classes.get(class_name)
    if definition is None:
        return None
    methods = (node for node in definition.body if isinstance(node, ast.FunctionDef) and node.name == name)
    bases = (_method(base.id, name, classes) for base in definition.bases if isinstance(base, ast.Name))
    return next(methods, None) or next((method for method in bases if method), None)


def _capability(class_name: str, method: str, classes: dict[str, ast.ClassDef]) -> int | None:
    """What get_min_capability of the class returns on CUDA."""
    function = _method(class_name, "get_min_capability", classes)
    return None if function is None else _returned(function.body, method, classes)


def _returned(body: list[ast.stmt], method: str, classes: dict[str, ast.ClassDef]) -> int | None:
    for node in body:
        if isinstance(node, ast.If):
            value = _returned(node.body if _true(node.test, method) else node.orelse, method, classes)
            if value is not None:
                return value
        elif isinstance(node, ast.Return) and node.value is not None:
            return _value(node.value, method, classes)
    return None


def _value(node: ast.expr, method: str, classes: dict[str, ast.ClassDef]) -> int | None:
    if isinstance(node, ast.Constant):
        return int(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.IfExp):
        return _value(node.body if _true(node.test, method) else node.orelse, method, classes)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner = node.func.value
        return _capability(owner.id, method, classes) if isinstance(owner, ast.Name) else None
    raise NotImplementedError(ast.unparse(node))


def _true(test: ast.expr, method: str) -> bool:
    if isinstance(test, ast.BoolOp):
        values = [_true(value, method) for value in test.values]
        return all(values) if isinstance(test.op, ast.And) else any(values)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return not _true(test.operand, method)
    if isinstance(test, ast.Attribute):
        return test.attr == "use_mxfp8" and method == "mxfp8"
    name = test.func if isinstance(test, ast.Call) else test
    return isinstance(name, ast.Name) and name.id in CUDA


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)


def _compared_strings(function: ast.FunctionDef) -> set[str]:
    """The names that a function looks for, as in `"A" in architectures`."""
    return {
        str(node.left.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant)
    }


def _assigned(tree: ast.Module, name: str) -> set[str]:
    """The strings of a list or set that is assigned anywhere; a starred name in it is one of the module's."""
    for value in sglang_attention.assigned(tree, name):
        inner = list(ast.walk(value))
        strings = {str(element.value) for element in inner if isinstance(element, ast.Constant)}
        starred = (element.value for element in inner if isinstance(element, ast.Starred))
        return strings.union(*(_assigned(tree, part.id) for part in starred if isinstance(part, ast.Name)))
    return set()


def _literal(tree: ast.Module, name: str) -> object:
    """The value of what is assigned anywhere."""
    for value in sglang_attention.assigned(tree, name):
        return ast.literal_eval(value)
    raise NotImplementedError(name)


if __name__ == "__main__":
    sys.exit(main())
