"""The probes of engines: SGLang's tables from source made for the test, options of any parser, and what an
error means."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from headfirst.decide.engines import probe_tasks, probing
from together import together

FILES = {
    "_version.py": "__version__ = version = '9.9.9'\n",
    "srt/configs/model_config.py": (
        "def is_generation_model(names, embedding=False):\n"
        "    return not ('AModel' in names or 'ARewardModel' in names or 'ARanker' in names)\n"
        "_MORE = ['VModel']\nmultimodal_model_archs = [*_MORE, 'WModel']\n"
        "_cross_encoding_pooler_archs = ['ARanker']\n"
        "SINKS = frozenset({'WModel'})\n"
        "def is_hybrid_swa_model():\n    hybrid_swa_archs = {'AForCausalLM', *SINKS}\n"
        "    mm_disabled_models = ['VModel']\n"
        "    compatible_quantization_methods = {'cuda': ['plain']}\n"
        "multimodal_breakable_cuda_graph_supported_model_archs = ['WModel']\n"
    ),
    "srt/arg_groups/overrides.py": (
        "_MAMBA_EXTRA_BUFFER_ARCHS = frozenset({'BForCausalLM'})\n"
        "_A2A_EP_SPANNING_BACKENDS = frozenset({'mori'})\n"
    ),
    "srt/models/a.py": (
        "class Base:\n    def forward(self, x, get_embedding=False, pp_proxy_tensors=None): ...\n"
        "class AForCausalLM(Base):\n    def set_eagle3_layers_to_capture(self, layers): ...\n"
        "class BForCausalLM:\n    def forward(self, x): ...\n"
        "    def set_dspark_layers_to_capture(self, layers): ...\n"
        "EntryClass = [AForCausalLM, BForCausalLM]\n"
    ),
    "srt/arg_groups/model_overrides/b.py": (
        "@_register_for('BForCausalLM', 'BMTP')\ndef refuse(args, config):\n"
        "    if attn_dp_enabled_of(args):\n        raise ValueError\n"
        "@_register_for('AForCausalLM')\ndef change(args, config):\n"
        "    if attn_dp_enabled_of(args):\n        return {}\n"
    ),
    "srt/layers/quantization/__init__.py": (
        "METHODS = {'plain': Plain, 'mxfp8': Plain, 'packed': Packed}\n"
        "if is_cuda():\n    METHODS.update({'cuda': Child})\n"
        "if is_npu():\n    METHODS.update({'npu': Plain})\n"
        "CPU_METHODS = {'cpu': Plain}\n"
    ),
    "srt/layers/quantization/methods.py": (
        "class Plain:\n    def get_min_capability(self):\n        if is_npu():\n            return 0\n"
        "        return 100 if self.use_mxfp8 else 80\n"
        "    def get_config_filenames(self):\n        return []\n"
        "class Packed:\n    def get_min_capability(self):\n        return Plain.get_min_capability()\n"
        "    def get_config_filenames(self):\n        return ['quant_config.json']\n"
        "class Child(Plain):\n    def __init__(self, bits): ...\n"
    ),
}


def loaded(name: str) -> ModuleType:
    """A module of SGLang's probe."""
    sys.modules.setdefault("probe_tasks", probe_tasks)
    module = ModuleType(name)
    exec(probing.program("sglang")[1][name], module.__dict__)
    return module


def asked(site: Path, request: dict[str, Any]) -> dict[str, Any]:
    """What the loader prints in an image that has the packages in `site`."""
    loader, modules = probing.program("sglang")
    done = subprocess.run(
        [sys.executable, "-c", loader],
        input=json.dumps({"modules": modules, "request": request}),
        env=os.environ | {"PYTHONPATH": str(site)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def source(site: Path, *without: str) -> None:
    for name, text in {**FILES, "__init__.py": ""}.items():
        if name not in without:
            path = site / "sglang" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def test_the_tables_are_read_from_the_source(tmp_path: Path) -> None:
    source(tmp_path)
    answer = asked(tmp_path, {"answers": True})
    document = answer["answers"]
    assert answer["commands"] == []
    assert (document["engine"], document["version"]) == ("sglang", "9.9.9")
    # Nothing of it can be imported here.
    assert (
        document["unanswered"].pop("options").startswith("ModuleNotFoundError: No module named 'sglang.srt")
    )
    assert document["unanswered"].keys() == {"cuda", "nccl"}
    table = document["support"]
    assert table == {
        "quantizations": {
            "cuda": {"min_capability": 80, "checkpoint_only": True},
            "mxfp8": {"min_capability": 100},
            "packed": {"min_capability": 80, "checkpoint_only": True},
            "plain": {"min_capability": 80},
        },
        "compatible_quantizations": {"cuda": ["plain"]},
        "spanning_exchanges": ["mori"],
        "architectures": {
            "AForCausalLM": ["embedding", "pipeline", "window_pool"],
            "AModel": ["no class", "embedding", "pooling_only"],
            "ARanker": ["no class", "rerank", "pooling_only"],
            "ARewardModel": ["no class", "reward", "pooling_only"],
            "BForCausalLM": ["tracked_states", "undivided_attention"],
            "BMTP": ["no class", "undivided_attention"],
            "VModel": ["no class", "multimodal", "images_when_asked"],
            "WModel": ["no class", "multimodal", "window_pool", "images_with_prefill_graphs"],
        },
    }


def test_a_table_that_a_version_lacks_takes_no_other_with_it(tmp_path: Path) -> None:
    source(tmp_path, "srt/arg_groups/overrides.py")
    document = asked(tmp_path, {"answers": True})["answers"]
    assert "spanning_exchanges" not in document["support"]
    assert document["support"]["architectures"]["BForCausalLM"] == ["undivided_attention"]
    missing = {"support.spanning_exchanges", "support.tracked_states"}
    assert {part for part in document["unanswered"] if part.startswith("support")} == missing
    assert asked(tmp_path / "empty", {"answers": True})["answers"]["unanswered"]["version"] == (
        "ModuleNotFoundError: this image's python3 has no package sglang"
    )


def test_files_are_written_and_other_commands_are_not_read(tmp_path: Path) -> None:
    file = tmp_path / "model" / "config.json"
    commands = [{"argv": ["bash", "-c", "ray start"]}]
    answer = asked(tmp_path, {"commands": commands, "files": {str(file): "{}"}})
    assert answer == {"commands": [{"read": False, "why": "it has no -m sglang.launch_server"}]}
    assert file.read_text() == "{}"
    commands = [{"argv": ["python3", "-m", "sglang.launch_server"]}]
    (answer,) = asked(tmp_path, {"commands": commands, "files": {f"{file}/x": ""}})["commands"]
    assert answer["read"] is False and answer["why"].startswith("FileExistsError")


# Architectures by how they divide their attention. PartModel gives its base other layers.
CLASSES = """
from sglang.srt.models.other import Base
class Mixer:
    def __init__(self, shard_on_attn_tp=False): RadixLinearAttention(ranks().attn_tp_size)
class Whole:
    def __init__(self): RadixAttention(ranks().tp_size)
class Part:
    def __init__(self): RadixAttention(ranks().attn_tp_size)
LAYERS = {"mixer": Mixer}
class WholeModel:
    def __init__(self, layer=Whole): layer()
class PartModel(WholeModel):
    def __init__(self): super().__init__(Part)
class WholeForCausalLM:
    def __init__(self): WholeModel()
class PartForCausalLM:
    def __init__(self): PartModel()
class MixerForCausalLM:
    def __init__(self): LAYERS["mixer"]()
class MixerOfGroupForCausalLM:
    def __init__(self): LAYERS["mixer"](shard_on_attn_tp=True)
class EitherForConditionalGeneration:
    def __init__(self): (WholeForCausalLM if small else PartForCausalLM)()
class ImagesForConditionalGeneration:
    def __init__(self): WholeForCausalLM()
class BothForCausalLM(Base):
    def __init__(self): Part(), Whole()
class OtherForCausalLM(Base): ...
EntryClass = [WholeForCausalLM, PartForCausalLM, MixerForCausalLM, MixerOfGroupForCausalLM, BothForCausalLM,
              EitherForConditionalGeneration, ImagesForConditionalGeneration, OtherForCausalLM]
"""


def test_the_nearest_attention_layers_decide_whether_it_is_divided(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(CLASSES)
    (tmp_path / "other.py").write_text("class Base:\n    def __init__(self): RadixAttention(tp_size)\n")
    names = loaded("probe_attention").ModelModules(tmp_path).undivided()
    models = {"BothForCausalLM", "MixerForCausalLM", "OtherForCausalLM", "WholeForCausalLM"}
    assert names == models | {"ImagesForConditionalGeneration"}


def test_an_option_is_described_as_the_check_reads_it() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--model", "-m", type=str)
    parser.add_argument("--sizes", type=int, nargs="+", choices=[8, 16, None])
    parser.add_argument("--parser")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--graphs", action=argparse.BooleanOptionalAction)
    parser.add_argument("--config", type=json.loads)
    types = {"int": "int", "loads": "json"}
    assert [probe_tasks.option(action, types, {"parser": ["b", "a"]}) for action in parser._actions] == [
        {"flags": ["--model", "-m"], "dest": "model", "type": "str"},
        {"flags": ["--sizes"], "dest": "sizes", "type": "int", "nargs": "+", "choices": [16, 8]},
        {"flags": ["--parser"], "dest": "parser", "type": "str", "choices": ["a", "b"]},
        {"flags": ["--eager"], "dest": "eager", "type": "flag"},
        {"flags": ["--graphs", "--no-graphs"], "dest": "graphs", "type": "flag"},
        {"flags": ["--config"], "dest": "config", "type": "json"},
    ]


class OfHub(ValueError):
    """An error of the hub's client."""

    __module__ = "huggingface_hub.errors"


def raised(make: Any) -> BaseException:
    try:
        make()
    except BaseException as error:
        return error
    raise AssertionError


def wrapped() -> None:
    try:
        raise OSError("libcuda.so.1: cannot open shared object file")
    except OSError as error:
        raise ValueError("the back end is not supported") from error


@together(
    ("error", "gpu", "problem"),
    [
        (ValueError("\x1b[31mUnknown\x1b[0m method:\n  x"), True, "Unknown method: x"),
        (ValueError("y" * 2000), True, "y" * 999 + "…"),
        (ValueError("Traceback (most recent call last):\n  File x\nValueError: bad size"), True,
         "ValueError: bad size"),
        (NotImplementedError("no such kernel on this GPU"), True, "no such kernel on this GPU"),
        (NotImplementedError("no such kernel on this GPU"), False, None),
        (ValueError("Minimum capability: 80. Current capability: 75."), True,
         "Minimum capability: 80. Current capability: 75."),
        (ValueError("16 heads are not divisible by 3"), False, "16 heads are not divisible by 3"),
        (RuntimeError("Unsupported weight quantization method: awq"), True,
         "Unsupported weight quantization method: awq"),
        (RuntimeError("No CUDA GPUs are available"), True, None),
        (RuntimeError("something else"), True, None),
        (ValueError("Failed to infer device type"), True, None),
        (ValueError("Can not get local ip"), True, None),
        (raised(wrapped), True, None),
        (OfHub("Repo id must be in the form"), True, None),
        (ImportError("libcudart.so.13"), True, None),
        (FileNotFoundError("params.json"), True, None),
        (KeyError("hidden_activation"), True, None),
        (AttributeError("no attribute 'eos_token_id'"), True, None),
        (SystemExit("--a needs --b"), True, "--a needs --b"),
        (SystemExit(1), True, None),
    ],
)  # fmt: skip
def test_a_refusal_is_the_engines_own_sentence(error: Exception, gpu: bool, problem: str | None) -> None:
    told = probe_tasks.judged(error, without_gpu=not gpu)
    assert told["problem"] == problem
    assert ("why" in told) == (problem is None)


def test_an_assertion_without_a_sentence_is_its_line(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("def make(heads):\n    assert (\n        heads % 3 == 0\n    )\n")
    made: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), made)
    error = raised(lambda: made["make"](16))
    assert probe_tasks.judged(error, False) == {"problem": "heads % 3 == 0 is not so (model.py, line 3)"}
    # Its reason may be the GPU.
    assert probe_tasks.judged(error, True) == {"problem": None, "why": "AssertionError"}


def test_each_task_has_a_process_and_an_end() -> None:
    def crashes() -> dict[str, Any]:
        os.kill(os.getpid(), 9)
        return {}

    def lasts() -> dict[str, Any]:
        subprocess.run(["sleep", "60"], check=False)
        return {}

    def fails() -> dict[str, Any]:
        raise KeyError("x")

    began = time.monotonic()
    results = probe_tasks.in_processes([crashes, lasts, fails, lambda: {"value": os.getpid()}], seconds=1)
    assert time.monotonic() - began < 10
    assert [result.get("why") for result in results] == [
        "its process ended with signal 9",
        "it did not answer within 1 s",
        "KeyError: 'x'",
        None,
    ]
    assert results[3]["value"] != os.getpid()


def test_a_copied_config_is_short(tmp_path: Path) -> None:
    """Of quantised layers one of each algorithm stays; layers' kinds stay whole, on a line."""
    config = {
        "auto_map": {"AutoConfig": "x.Y"},
        "layer_types": ["full_attention", "sliding_attention"],
        "quantization_config": {
            "ignore": ["lm_head"],
            "quantized_layers": {"a": {"quant_algo": "FP8"}, "b": {"quant_algo": "FP8"}},
        },
    }
    (tmp_path / "p--m_config.json").write_text(json.dumps(config))
    tool = Path(__file__).resolve().parents[2] / "tools" / "model_configs.py"
    subprocess.run([sys.executable, tool, tmp_path, "the hub", tmp_path / "copies", "p--m"], check=True)
    text = (tmp_path / "copies" / "p--m.json").read_text()
    assert json.loads(text) == {
        "source": "the hub",
        "config": {
            "layer_types": ["full_attention", "sliding_attention"],
            "quantization_config": {
                "ignore": ["lm_head"],
                "quantized_layers": {"b": {"quant_algo": "FP8"}},
            },
        },
    }
    assert '"layer_types": ["full_attention", "sliding_attention"],\n' in text
