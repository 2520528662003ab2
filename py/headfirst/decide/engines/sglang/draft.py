"""Draft models in SGLang 0.5.23: the arguments that they need.

Source: sglang/srt/arg_groups/speculative_hook.py.
"""

from __future__ import annotations

from headfirst.decide.engines import drafts
from headfirst.decide.engines.base import ArgumentNeeds, DraftRequest, Values

# NEXTN and EAGLE are one algorithm; a draft of Gemma-4 makes it another one itself.
_ALGORITHMS = {
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "mtp": "EAGLE",
    "dflash": "DFLASH",
    "dspark": "DSPARK",
    drafts.STANDALONE: "STANDALONE",
}
_ALGORITHM, _PATH = "--speculative-algorithm", "--speculative-draft-model-path"
_SOURCE = "https://docs.sglang.io/docs/advanced_features/speculative_decoding"


def needs(request: DraftRequest) -> ArgumentNeeds:
    """The folder, and the algorithm where the user sets none; SGLang chooses steps and tokens itself."""
    user_algorithm = request.values.get("speculative_algorithm")
    algorithm = str(user_algorithm or _ALGORITHMS.get(request.kind, "")).upper()
    if not algorithm:
        return ArgumentNeeds(
            problem=f"its kind is not known: set engine_args={_ALGORITHM} (EAGLE3, EAGLE, STANDALONE)"
        )
    arguments = {} if user_algorithm else {_ALGORITHM: algorithm}
    return ArgumentNeeds(arguments | {_PATH: request.folder}, drafts.REASON, _SOURCE)


def named(values: Values) -> tuple[str, str]:
    """The draft that the user's arguments name, and the flag."""
    return str(values.get("speculative_draft_model_path") or ""), _PATH
