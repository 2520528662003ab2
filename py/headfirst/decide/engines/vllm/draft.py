"""Draft models in vLLM 0.33.0: the arguments that they need.

Source: config/speculative.py (SpeculativeConfig), engine/arg_utils.py (create_speculative_config).
"""

from __future__ import annotations

from headfirst.decide.engines import drafts
from headfirst.decide.engines.base import ArgumentNeeds, DraftRequest, Values

_METHODS = {kind: kind for kind in ("eagle", "eagle3", "mtp", "dflash", "dspark")}
_METHODS[drafts.STANDALONE] = "draft_model"
_RECIPES = "https://github.com/vllm-project/recipes/blob/main/models"
_DOCS = "https://docs.vllm.ai/en/stable/features/speculative_decoding"
# Where the draft's config states no number: tokens at a time, and the source.
_DEFAULTS = {
    "eagle": (3, f"{_RECIPES}/mistralai/Mistral-Small-4-119B-2603.yaml"),
    "eagle3": (3, f"{_RECIPES}/moonshotai/Kimi-K2.5.yaml"),
    "mtp": (1, "vLLM's config/speculative.py (n_predict)"),
    "draft_model": (5, f"{_DOCS}/draft_model"),
}
_GEMMA = (4, f"{_RECIPES}/Google/gemma-4-31B-it.yaml")
_STATED = "The draft's config.json states how many tokens it proposes."


def needs(request: DraftRequest) -> ArgumentNeeds:
    """The folder, and method and number of tokens where the user sets none."""
    config = request.values.get("speculative_config") or {}
    user_method = request.values.get("spec_method") or config.get("method")
    method = user_method or _METHODS.get(request.kind, "")
    if not method:
        return ArgumentNeeds(
            problem="its kind is not known: set engine_args=--spec-method (eagle3, eagle, draft_model)"
        )
    arguments = {"--spec-model": request.folder} | ({} if user_method else {"--spec-method": method})
    note = _shorter(request, method)
    if request.values.get("spec_tokens") or config.get("num_speculative_tokens"):
        return ArgumentNeeds(arguments, drafts.REASON, _DOCS, note)
    draft = request.target.draft
    if draft is not None and draft.drafting is not None and draft.drafting.tokens:
        tokens = str(draft.drafting.tokens)
        return ArgumentNeeds(arguments | {"--spec-tokens": tokens}, f"{drafts.REASON} {_STATED}", _DOCS, note)
    default = _GEMMA if request.target.architecture.startswith("Gemma4") else _DEFAULTS.get(method)
    if default is None:
        problem = f"how many tokens it proposes is not known: set engine_args=--spec-tokens ({method})"
        return ArgumentNeeds(problem=problem)
    number, source = default
    reason = f"{drafts.REASON} {number} tokens: those of vLLM's example of {method}."
    return ArgumentNeeds(arguments | {"--spec-tokens": str(number)}, reason, source, note)


def _shorter(request: DraftRequest, method: str) -> str:
    """The note on a model of its own that drafts fewer tokens than the service serves (config/vllm.py,
    _limit_max_model_len_to_draft)."""
    draft, max_length = request.target.draft, request.values.get("max_model_len")
    longest = max_length if max_length and max_length > 0 else request.target.max_context
    if draft is None or method != "draft_model" or draft.max_context >= longest:
        return ""
    return f"vLLM lowers the longest request to the {draft.max_context:,} tokens of the draft model."


def named(values: Values) -> tuple[str, str]:
    """The draft that the user's arguments name, and the flag."""
    if model := values.get("spec_model"):
        return str(model), "--spec-model"
    return str((values.get("speculative_config") or {}).get("model") or ""), "--speculative-config"
