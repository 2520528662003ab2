"""Draft models in LMDeploy 0.18.0 (PyTorch engine): the arguments that they need.

Source: lmdeploy/cli/utils.py (add_spec_group), pytorch/configurations/llama.py and kimi_k2.py,
pytorch/models/module_map.py, pytorch/engine/config_builder.py (build_specdecode_config).
"""

from __future__ import annotations

from headfirst.decide.engines import drafts
from headfirst.decide.engines.base import ArgumentNeeds, DraftRequest, Values
from headfirst.decide.model.checkpoint import Checkpoint

_METHODS = {"eagle": "eagle", "eagle3": "eagle3", "dflash": "dflash"}
# Methods of multi-token prediction by the target's architecture; others have deepseek_mtp.
_PREDICTING = (("Qwen3_5", "qwen3_5_mtp"), ("HYV3", "hy3_mtp"))
# Its draft is divided as its target; EAGLE's others are whole on each rank.
_DIVIDED = "Eagle3DeepseekV2ForCausalLM"
_ALGORITHM, _MODEL = "--speculative-algorithm", "--speculative-draft-model"
_SOURCE = "https://github.com/InternLM/lmdeploy/blob/main/docs/en/advance/spec_decoding.md"


def needs(request: DraftRequest) -> ArgumentNeeds:
    """The folder, and the method where the user sets none; LMDeploy drafts one token by default."""
    user_algorithm = request.values.get("speculative_algorithm")
    method = str(user_algorithm or _method(request))
    if not method:
        kind = request.kind or "of this kind, which is not known"
        return ArgumentNeeds(
            problem=f"it has no method for a draft model {kind}: set engine_args={_ALGORITHM}"
        )
    return ArgumentNeeds(
        ({} if user_algorithm else {_ALGORITHM: method}) | {_MODEL: request.folder}, drafts.REASON, _SOURCE
    )


def named(values: Values) -> tuple[str, str]:
    """The draft that the user's arguments name, and the flag."""
    return str(values.get("speculative_draft_model") or ""), _MODEL


def ranks(checkpoint: Checkpoint, tensor: int) -> int:
    """Among how many ranks the draft is divided."""
    draft = checkpoint.draft
    kind = draft.drafting.kind if draft and draft.drafting else ""
    whole = kind in ("eagle", "eagle3") and draft is not None and draft.architecture != _DIVIDED
    return 1 if whole else tensor


def _method(request: DraftRequest) -> str:
    if request.kind != "mtp":
        return _METHODS.get(request.kind, "")
    name = request.target.architecture
    return next((method for start, method in _PREDICTING if name.startswith(start)), "deepseek_mtp")
