"""The tools that read an engine: SGLang's tables from source made for the test, and options of any parser."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import engine_options
import pytest
import sglang_attention
from headfirst.decide import engines

TOOL = Path(__file__).resolve().parents[2] / "tools" / "sglang_support.py"
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


def test_the_table_is_read_from_the_source(tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / "sglang" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run([sys.executable, TOOL, tmp_path / "sglang", tmp_path], check=True)
    table = json.loads((tmp_path / "support-9.9.9.json").read_text())
    del table["source"]
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
            "AForCausalLM": ["embedding", "pipeline", "eagle3", "window_pool"],
            "AModel": ["no class", "embedding", "pooling_only"],
            "ARanker": ["no class", "rerank", "pooling_only"],
            "ARewardModel": ["no class", "reward", "pooling_only"],
            "BForCausalLM": ["dflash", "tracked_states", "undivided_attention"],
            "BMTP": ["no class", "undivided_attention"],
            "VModel": ["no class", "multimodal", "images_when_asked"],
            "WModel": ["no class", "multimodal", "window_pool", "images_with_prefill_graphs"],
        },
    }


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
    names = sglang_attention.ModelModules(tmp_path).undivided()
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
    assert [engine_options.describe(action, types, {"parser": ["b", "a"]}) for action in parser._actions] == [
        {"flags": ["--model", "-m"], "dest": "model", "type": "str"},
        {"flags": ["--sizes"], "dest": "sizes", "type": "int", "nargs": "+", "choices": [16, 8]},
        {"flags": ["--parser"], "dest": "parser", "type": "str", "choices": ["a", "b"]},
        {"flags": ["--eager"], "dest": "eager", "type": "flag"},
        {"flags": ["--graphs", "--no-graphs"], "dest": "graphs", "type": "flag"},
        {"flags": ["--config"], "dest": "config", "type": "json"},
    ]


@pytest.mark.parametrize(
    ("name", "version"), [(name, version) for name in engines.names() for version in engines.versions(name)]
)
def test_the_files_of_options_are_as_the_tools_write_them(name: str, version: str, tmp_path: Path) -> None:
    committed = Path(engines.__path__[0], name, f"arguments-{version}.json")
    document = json.loads(committed.read_text(encoding="utf-8"))
    engine_options.write(tmp_path, version, document["source"], document["options"])
    assert (tmp_path / committed.name).read_text(encoding="utf-8") == committed.read_text(encoding="utf-8")


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
    tool = TOOL.with_name("model_configs.py")
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
