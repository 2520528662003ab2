"""What SGLang of an image can do, and what it makes of a command (probe_tasks.py, probing.py).

What it supports is read from its source code, of which nothing is imported. Quantisation methods have the
lowest compute capability, and "checkpoint_only" where the method cannot quantise a BF16 checkpoint at
loading. Each architecture has a list of what it can do and what changes its layout and memory; "no class"
where a list of SGLang names one that it has no model class for.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import probe_attention
import probe_tasks

# Words right before those that the engine's own parser reads; a script may come before them.
BEFORE = ("-m", "sglang.launch_server")
# Parsers of a value with suffixes or structure, by function name -> how to check the text.
TYPES = {
    "int": "int",
    "float": "float",
    "human_readable_int": "human_int",
    "loads": "json",
    "json_list_type": "json",
    "parse_cuda_graph_config_arg": "json",
}
# What the code asks about the platform: these are CUDA's answers. Every other platform is absent.
CUDA = {"is_cuda", "_is_cuda"}


def main(request: Mapping[str, Any]) -> None:
    """Answers a request."""
    parts = {"version": partial(probe_tasks.version, "sglang"), "options": options, "support": support}
    probe_tasks.answer(request, engine="sglang", parts=parts, before=BEFORE, check=check)


def options() -> list[dict[str, Any]]:
    """The options of its parser."""
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(prog="sglang", add_help=False)
    ServerArgs.add_cli_args(parser)
    return [probe_tasks.option(action, TYPES) for action in parser._actions if action.option_strings]


def read(words: list[str]) -> Any:
    """The arguments of a command, after all of SGLang's own defaults and checks."""
    from sglang.srt.server_args import prepare_server_args

    arguments = prepare_server_args(words)
    if hasattr(arguments, "resolve_once"):  # 0.5.21 resolves what it reads
        arguments.resolve_once()
    arguments.check_server_args()
    return arguments


def check(words: list[str]) -> None:
    """Reads a command as at a start, up to the classes of the model and its adapters."""
    arguments = read(words)
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.model_loader.loader import _get_quantization_config

    config = ModelConfig.from_server_args(arguments)
    quantization = _get_quantization_config(config, LoadConfig())  # it takes the model's class first
    _divide(arguments, config, quantization)
    _take_adapters(arguments)


def _divide(arguments: Any, config: Any, quantization: Any) -> None:
    """Makes the layers of one rank on torch's meta device: sizes that the ranks do not divide raise.

    The groups of ranks are stand-ins, so that whatever else it raises may be of these.
    """
    try:
        _make(arguments, config, quantization)
    except Exception as error:  # whatever a class does with stand-ins
        if "divisible" in str(error) or " % " in probe_tasks.assertion(error):
            raise
        print("the model was not made:", probe_tasks.last_line(error))


def _make(arguments: Any, config: Any, quantization: Any) -> None:
    import torch
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.layers.dp_attention import initialize_dp_attention_flags
    from sglang.srt.layers.moe import initialize_moe_config
    from sglang.srt.model_loader.loader import _initialize_model
    from sglang.srt.runtime_context import SpawnRanks, create_context, get_parallel, use_context

    @cache  # SGLang asks whether two groups are the same; what it asks besides, a stand-in must not answer
    def group(size: int) -> SimpleNamespace:
        facts = {"world_size": size, "rank_in_group": 0, "is_first_rank": True, "is_last_rank": True}
        return SimpleNamespace(ranks=list(range(size)), **facts)

    ranks = SpawnRanks(world_rank=0, gpu_id=0, dp_rank=None)
    with ExitStack() as stack:
        stack.enter_context(use_context(create_context(arguments, role="scheduler", ranks=ranks)))
        parallel = get_parallel()
        names = ("tp", "attn_tp", "attn_cp", "moe_tp", "moe_ep", "moe_dp")
        groups = {f"{name}_group": group(getattr(parallel, f"{name}_size")) for name in names}
        # All layers: there is one pipeline stage.
        groups |= {"world_group": group(parallel.tp_size), "pp_group": group(1)}
        stack.enter_context(parallel.override(**groups))
        initialize_dp_attention_flags(arguments)
        initialize_moe_config()
        torch.set_default_dtype(config.dtype)
        with torch.device("meta"):
            _initialize_model(config, LoadConfig(), quantization)


def _take_adapters(arguments: Any) -> None:
    """What its check of a new adapter needs of the manager, which is made with the model's weights."""
    from sglang.srt.arg_groups.overrides import resolving_view

    resolved = resolving_view(arguments)
    if not resolved.lora_paths:
        return
    from sglang.srt.lora.lora_config import LoRAConfig
    from sglang.srt.lora.lora_manager import LoRAManager

    manager: Any = SimpleNamespace(attn_dp_enabled=False, lora_refs={}, memory_pool=None)
    manager.enable_dp_attention = False  # of 0.5.21
    manager.num_pinned_loras, manager.max_loras_per_batch = 0, resolved.max_loras_per_batch
    for adapter in resolved.lora_paths:
        LoRAManager.validate_new_adapter(manager, LoRAConfig(adapter.lora_path), adapter)


def support() -> probe_tasks.Tables:
    """The tables of headfirst.decide.engines.sglang.support."""
    srt = probe_tasks.home("sglang") / "srt"
    config, overrides = srt / "configs" / "model_config.py", srt / "arg_groups" / "overrides.py"
    abilities: dict[str, Any] = {}
    tables: dict[str, Callable[[], Any]] = {
        "quantizations": lambda: _quantizations(srt / "layers" / "quantization"),
        # Given by hand -> methods of checkpoints that it is accepted for.
        "compatible_quantizations": lambda: _literal(_tree(config), "compatible_quantization_methods"),
        # Values of --moe-a2a-backend that spread the experts over all tensor ranks.
        "spanning_exchanges": lambda: sorted(_assigned(_tree(overrides), "_A2A_EP_SPANNING_BACKENDS")),
        "architectures": lambda: _architectures(srt, abilities),
    }
    told = probe_tasks.Tables(tables)
    told["missing"].update(abilities)
    return told


def _architectures(srt: Path, missing: dict[str, str]) -> dict[str, list[str]]:
    """Architecture -> what it can do; `missing` gets the reason of each ability without a list."""
    models = dict(_models(srt / "models"))
    config, overrides = srt / "configs" / "model_config.py", srt / "arg_groups" / "overrides.py"

    def pooling() -> set[str]:
        return _compared_strings(_function(_tree(config), "is_generation_model"))

    def rerank() -> set[str]:
        return _assigned(_tree(config), "_cross_encoding_pooler_archs")

    def reward() -> set[str]:
        return {name for name in pooling() if "Reward" in name or "SequenceClassification" in name} - rerank()

    def listed(path: Path, name: str) -> Callable[[], set[str]]:
        return lambda: _assigned(_tree(path), name)

    abilities: dict[str, Callable[[], set[str]]] = {
        # With --is-embedding, also every model class whose forward can return a pooled vector.
        "embedding": lambda: (pooling() | _with(models, "get_embedding")) - reward() - rerank(),
        "reward": reward,
        "rerank": rerank,
        "pooling_only": pooling,
        "multimodal": listed(config, "multimodal_model_archs"),
        "pipeline": lambda: _with(models, "pp_proxy_tensors"),
        # How the memory is divided: a pool of their own for layers with a window; recurrent states that the
        # prefix cache tracks; images that are read only when asked; prefill graphs although there are images.
        "window_pool": listed(config, "hybrid_swa_archs"),
        "tracked_states": listed(overrides, "_MAMBA_EXTRA_BUFFER_ARCHS"),
        "images_when_asked": listed(config, "mm_disabled_models"),
        "images_with_prefill_graphs": listed(config, "multimodal_breakable_cuda_graph_supported_model_archs"),
        "undivided_attention": lambda: (
            probe_attention.ModelModules(srt / "models").undivided()
            | probe_attention.refused(srt / "arg_groups" / "model_overrides")
        ),
    }
    told = probe_tasks.Tables(abilities)
    missing.update(told["missing"])
    found: dict[str, set[str]] = told["value"]
    named = {*models}.union(*found.values())
    found = {"no class": named - {*models}, **found}
    return {name: [can for can, names in found.items() if name in names] for name in sorted(named)}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _models(folder: Path) -> Iterator[tuple[str, set[str]]]:
    """The architecture and the arguments of its forward, of every EntryClass."""
    trees = [_tree(path) for path in sorted(folder.glob("*.py"))]
    classes = _classes(trees)
    for tree in trees:
        for name in probe_attention.entry_classes(tree):
            forward = _method(name, "forward", classes)
            yield name, {argument.arg for argument in forward.args.args} if forward else set()


def _classes(trees: Iterable[ast.Module]) -> dict[str, ast.ClassDef]:
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}


def _with(models: dict[str, set[str]], argument: str) -> set[str]:
    return {name for name, arguments in models.items() if argument in arguments}


def _quantizations(folder: Path) -> dict[str, dict[str, int | bool]]:
    """Method -> {"min_capability": 75, "checkpoint_only": true} on CUDA."""
    classes = _classes(_tree(path) for path in sorted(folder.rglob("*.py")))
    registry = _tree(folder / "__init__.py")
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
    for value in probe_tasks.assigned(tree, name):
        inner = list(ast.walk(value))
        strings = {str(element.value) for element in inner if isinstance(element, ast.Constant)}
        starred = (element.value for element in inner if isinstance(element, ast.Starred))
        return strings.union(*(_assigned(tree, part.id) for part in starred if isinstance(part, ast.Name)))
    raise LookupError(f"its source has no {name}")


def _literal(tree: ast.Module, name: str) -> object:
    """The value of what is assigned anywhere."""
    for value in probe_tasks.assigned(tree, name):
        return ast.literal_eval(value)
    raise LookupError(f"its source has no {name}")
