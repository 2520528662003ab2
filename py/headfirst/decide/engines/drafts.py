"""A draft model beside the one that is served: what every engine asks of the pair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headfirst.decide.engines.base import DraftRequest
from headfirst.decide.engines.layout import head_problems
from headfirst.decide.model.checkpoint import FLOATS, Checkpoint

STANDALONE = "standalone"  # the kind of a draft that is a model of its own
REASON = "draft_model sets them."


@dataclass(frozen=True)
class Default:
    """How many tokens a kind proposes at a time where neither its config nor the user states it."""

    tokens: int
    source: str


def misfits(request: DraftRequest) -> Iterator[str]:
    """Widths and vocabularies that do not fit the target, a clause each, of a draft that was read.

    The states of the target go through matrices of the draft as they are; what it proposes are tokens of the
    target (vllm config/speculative.py, verify_equal_vocab_size_if_draft_model; sglang
    speculative/standalone_worker_v2.py, _validate_vocab_compatibility).
    """
    target, draft = request.target, request.target.draft
    if draft is None:
        return
    drafting = draft.drafting
    if drafting is None:
        if draft.vocab_size != target.vocab_size:
            yield (
                f"it has a vocabulary of {draft.vocab_size}, and {target.id} one of {target.vocab_size}: a "
                "model of its own needs the same tokenizer"
            )
        return
    if drafting.target_hidden not in (None, target.hidden_size):
        yield (
            f"it reads states of {drafting.target_hidden} elements, and those of {target.id} have "
            f"{target.hidden_size}"
        )
    if (drafting.vocabulary or 0) > target.vocab_size:
        yield f"it proposes {drafting.vocabulary} tokens, and {target.id} has {target.vocab_size}"


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
