"""A draft model beside the one that is served: what every engine asks of the pair."""

from __future__ import annotations

from headfirst.decide.engines.layout import head_problems
from headfirst.decide.model.checkpoint import FLOATS, Checkpoint

STANDALONE = "standalone"  # the kind of a draft that is a model of its own
REASON = "draft_model sets them."


def head_reasons(checkpoint: Checkpoint, ranks: int) -> list[str]:
    """Why `ranks` cannot share the attention of the draft, a clause each."""
    draft = checkpoint.draft
    return [f"of the draft model {reason}" for reason in head_problems(draft, ranks)] if draft else []


def as_computed(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with its draft in the type in which it is computed, that of the model."""
    draft = checkpoint.draft
    if draft is None:
        return checkpoint
    dtype = checkpoint.dtype if checkpoint.dtype in FLOATS else "bf16"
    return checkpoint.model_copy(update={"draft": draft.computed_in(dtype)})


def token_bytes(draft: Checkpoint, ranks: int, element: int) -> int:
    """Bytes of one token in the draft's layers on one of `ranks` ranks; `element`: of one element."""
    if draft.drafting and draft.drafting.shares_cache:
        return 0
    if mla := draft.mla:
        return draft.layers * (mla.kv_lora_rank + mla.qk_rope_head_dim) * element
    return sum(
        max(1, kv.heads // ranks) * (kv.key_dim + kv.value_dim) * element
        for kv in (draft.kv(kind) for kind in draft.layer_types if kind != "linear")
    )


def is_elsewhere(name: object) -> bool:
    """Whether an argument names a draft on a hub: it is no folder, and no word such as ngram."""
    return isinstance(name, str) and "/" in name and not name.startswith("/")
