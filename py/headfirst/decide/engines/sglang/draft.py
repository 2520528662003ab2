"""Draft models in SGLang 0.5.22 and 0.5.23: the arguments that they need, and what is refused.

Source: sglang/srt/arg_groups/speculative_hook.py, speculative/*_worker_v2.py, model_executor/
model_runner_components/attention_backend_setup.py (configure_aux_hidden_state_capture).
"""

from __future__ import annotations

from collections.abc import Iterator

from headfirst.decide.engines import drafts
from headfirst.decide.engines.answers import Answers
from headfirst.decide.engines.base import ArgumentNeeds, DraftRequest, Values
from headfirst.decide.engines.sglang.support import SupportTable

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


def needs(answers: Answers, request: DraftRequest) -> ArgumentNeeds:
    """The folder, and the algorithm where the user sets none; SGLang chooses steps and tokens itself."""
    user_algorithm = request.values.get("speculative_algorithm")
    algorithm = str(user_algorithm or _ALGORITHMS.get(request.kind, "")).upper()
    if not algorithm:
        return ArgumentNeeds(
            problem=f"its kind is not known: set engine_args={_ALGORITHM} (EAGLE3, EAGLE, STANDALONE)"
        )
    if problem := next(_refusals(answers, request, algorithm), ""):
        return ArgumentNeeds(problem=problem)
    arguments = {} if user_algorithm else {_ALGORITHM: algorithm}
    return ArgumentNeeds(arguments | {_PATH: request.folder}, drafts.REASON, _SOURCE)


def named(values: Values) -> tuple[str, str]:
    """The draft that the user's arguments name, and the flag."""
    return str(values.get("speculative_draft_model_path") or ""), _PATH


def _refusals(answers: Answers, request: DraftRequest, algorithm: str) -> Iterator[str]:
    named, target, draft = f"SGLang {answers.version}", request.target, request.target.draft
    has: SupportTable = answers.support
    if algorithm == "NGRAM":
        yield f"{_ALGORITHM} NGRAM takes no draft model"
    if draft is not None:
        if draft.drafting and draft.drafting.speculators:
            yield "SGLang does not read the format of speculators"
        elif algorithm == "EAGLE3" and "Eagle3" not in draft.architecture:
            yield (
                f"its config.json names the architecture {draft.architecture}, which SGLang loads as a model "
                "of its own: a draft of EAGLE3 names LlamaForCausalLMEagle3"
            )
        elif not has.has_class(draft.architecture):
            yield f"{named} does not have its architecture {draft.architecture}"
        yield from drafts.misfits(request)
    if algorithm == "EAGLE3" and has.lacks(target.architecture, "eagle3"):
        yield f"{named} gives no draft of EAGLE3 the states of {target.architecture}"
    if algorithm in ("DFLASH", "DSPARK") and has.lacks(target.architecture, "dflash"):
        yield f"{named} gives no draft of {algorithm} the states of {target.architecture}"
