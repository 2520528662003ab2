"""What a checkpoint states of itself that drafts tokens for another model: EAGLE, MTP, DFlash, DSpark.

Which kind it is: by the name of its architecture in the engines, by the format of the project
speculators (vLLM's transformers_utils/configs/speculators), else by the matrix that joins a draft's inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from headfirst.common.safetensors_file import StoredTensor
from headfirst.decide.frozen import Frozen
from headfirst.decide.model.config_keys import Keys

Kind = Literal["eagle", "eagle3", "mtp", "dflash", "dspark"]

# In this order: Eagle2_5_VL is a model that reads images.
_NAMES: tuple[tuple[Kind, str], ...] = (
    ("dspark", r"DSpark"),
    ("dflash", r"DFlash|XPress|MuseGlimmerAssistant|LiLiCorr"),
    ("eagle3", r"^(Eagle3|P[Ee]agle)|Eagle3(Speculator)?$|^Eagle3Draft"),
    ("eagle", r"^Eagle(?!2)|Eagle$"),
    ("mtp", r"NextN$|MTP|Assistant"),
)
_SPECULATORS: Mapping[str, Kind] = {
    "eagle": "eagle",
    "eagle3": "eagle3",
    "peagle": "eagle3",
    "dflash": "dflash",
    "dflash2": "dflash",
    "dspark": "dspark",
}
# The kinds that names of repositories have in them, as vLLM reads them (config/speculative.py).
_IDS: tuple[tuple[Kind, str], ...] = (
    ("eagle3", r"eagle-?3"),
    ("eagle", r"eagle"),
    ("dflash", r"dflash"),
    ("dspark", r"dspark"),
    ("mtp", r"mtp|nextn|assistant"),
)
# The matrix that joins embeddings and states of the target; each rank has it whole (models/llama_eagle3.py of
# SGLang and of vLLM).
_JOINING = re.compile(r"^(?:model\.)?fc\.")
_STATES = 3  # of three layers of the target, where the config lists none


class Drafting(Frozen):
    """What is special about a checkpoint that drafts.

    `tokens`: that it proposes at a time, where the config states it; `shares_cache`: it reads the target's
    KV cache and has none; `whole_bytes`: of tensors that each rank has whole.
    """

    kind: Kind
    tokens: int | None = None
    shares_cache: bool = False
    whole_bytes: int = 0


def kind_of_id(id: str) -> Kind | None:
    """The kind that the name of a repository or folder suggests; None where it has none in it."""
    name = id.rstrip("/").rpartition("/")[2].lower()
    return next((kind for kind, pattern in _IDS if re.search(pattern, name)), None)


def flat(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """config.json with the sizes of its layers at the top; speculators has them in an object of their own."""
    layers = config.get("transformer_layer_config")
    if "speculators_model_type" not in config or not isinstance(layers, dict):
        return config
    return {**layers, **config}


def read(config: Mapping[str, Any], keys: Keys, tensors: Iterable[StoredTensor]) -> Drafting | None:
    """What `config` (of `flat`) and the headers state; None for a model of its own."""
    joining = [tensor for tensor in tensors if _JOINING.search(tensor.name)]
    kind = kind_of(config, has_joining=bool(joining))
    if kind is None:
        return None
    hidden = keys.number("hidden_size")
    stated = keys.number("target_hidden_size", 0) or keys.of(config).number("backbone_hidden_size", 0)
    shares_cache = re.match("Gemma4.*Assistant", str(config["architectures"][0])) is not None
    whole = sum(tensor.end - tensor.start for tensor in joining)
    if not whole and kind in ("eagle", "eagle3"):
        whole = (_STATES if kind == "eagle3" else 2) * (stated or hidden) * hidden * 2
    return Drafting(
        kind=kind,
        tokens=_tokens(keys, kind),
        shares_cache=shares_cache,
        whole_bytes=whole,
    )


def kind_of(config: Mapping[str, Any], *, has_joining: bool) -> Kind | None:
    """The kind that `config` (of `flat`) states; `has_joining`: there is the matrix that joins inputs."""
    speculators = config.get("speculators_model_type")
    if isinstance(speculators, str):
        return _SPECULATORS.get(speculators)
    name = str(config["architectures"][0])
    if kind := next((kind for kind, pattern in _NAMES if re.search(pattern, name)), None):
        return kind
    if config.get("draft_vocab_size"):
        return "eagle3"
    # EAGLE's first drafts have the architecture of their target (yuhuili/EAGLE-LLaMA3-Instruct-8B).
    return "eagle" if has_joining else None


def _tokens(keys: Keys, kind: Kind) -> int | None:
    """speculators' first proposal; the block of DFlash and DSpark, which propose one at a time."""
    proposals = (keys.part("speculators_config") or keys.of({})).entries("proposal_methods", 1)
    if proposals and isinstance(proposals[0], dict):
        return keys.of(proposals[0]).number("speculative_tokens", 0) or None
    if kind not in ("dflash", "dspark"):
        return None
    nested = keys.part("dflash_config") or keys.of({})
    block = keys.number("block_size", 0) or nested.number("block_size", 0)
    # Of a block of DFlash the first token is the target's (vllm, max_num_new_slots_for_drafting's table).
    return (block - (kind == "dflash")) or None
