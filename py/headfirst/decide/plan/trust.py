"""May the engine run Python code that the model's repository brings? Decided here, once, with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from headfirst.common.errors import InputError
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.engines.base import Values
from headfirst.decide.model import catalogue, families
from headfirst.decide.model.checkpoint import Checkpoint

FLAG = "--trust-remote-code"
# The line that a person adds after reading the model's Python files.
SETTING = "trust_remote_code=true"
_READ = f"Read the Python files of its repository, then write `{SETTING}` under [all:vars]."
_CONSEQUENCE = (
    "Its config.json names Python files (auto_map); if the engine needs them for the configuration, "
    f"the tokenizer or the model, it stops while loading. To run them, read them and add `{SETTING}` "
    "under [all:vars]."
)


@dataclass(frozen=True)
class Trust:
    """`remote_code`: the engine gets the flag; `reason` is a sentence for people."""

    remote_code: bool
    reason: str


def revision(settings: ServiceSettings) -> str | None:
    """What is fetched: the inventory's revision, else the catalogue's commit; None: the hub's branch."""
    return settings.model_revision or catalogue.trusted_commit(settings.model, settings.model_source)


def choose(
    settings: ServiceSettings, checkpoint: Checkpoint, arguments: Values, *, where: str | None
) -> Trust:
    """Decide by the inventory, then by the catalogue. `arguments` are the values of engine_args.

    The flag is for a draft model too, whose code the catalogue's commit of the model does not cover.
    """
    if arguments.get("trust_remote_code"):
        if settings.trust_remote_code is False:
            raise InputError(
                f"trust_remote_code=false, but engine_args has {FLAG}",
                where=where,
                hint="Remove one of them.",
            )
        return Trust(True, f"Code of the model may run: engine_args has {FLAG}.")
    if settings.trust_remote_code:
        return Trust(True, f"Code of the model may run: the inventory sets {SETTING}.")
    if not checkpoint.remote_code:
        return Trust(False, "The model contains no code.")
    commit = catalogue.trusted_commit(settings.model, settings.model_source)
    if settings.trust_remote_code is None and commit and revision(settings) == commit:
        _refuse_code_of_draft(settings, checkpoint, where)
        return Trust(
            True, f"Code of the model may run: the catalogue lists it at commit {commit}, which is fetched."
        )
    if settings.trust_remote_code is False:
        why = "set in the inventory."
    elif commit:
        why = f"model_revision is {settings.model_revision}, and the catalogue lists commit {commit}."
    else:
        why = f"the catalogue lists no commit of it on this source ({settings.model_source})."
    family = families.find(checkpoint)
    if family and family.code == "needed":
        raise InputError(
            f"{checkpoint.id} needs its own Python code, which may not run: {why}",
            where=where,
            hint=_READ,
        )
    if family and family.code == "unneeded":
        return Trust(
            False, f"Code of the model does not run: {why} The engines have their own code for this family."
        )
    return Trust(False, f"Code of the model does not run: {why} {_CONSEQUENCE}")


def _refuse_code_of_draft(settings: ServiceSettings, checkpoint: Checkpoint, where: str | None) -> None:
    draft = checkpoint.draft
    if settings.draft_model is None or (draft is not None and not draft.remote_code):
        return
    what = "contains Python code" if draft else "was not read, and may contain Python code"
    raise InputError(
        f"the draft model {settings.draft_model} {what}, which would run with that of {checkpoint.id}",
        where=where,
        hint=_READ,
    )
