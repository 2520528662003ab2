"""The model that drafts tokens for the service's: its arguments, its place, and what it takes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headfirst.common.errors import InputError
from headfirst.decide.cluster.types import Service
from headfirst.decide.engines import drafts, presets
from headfirst.decide.engines.base import DraftRequest, Engine, Values
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.task import GENERATING, Task
from headfirst.decide.plan.types import ChosenArgument, DraftModel
from headfirst.decide.plan.weights.decide import draft_model


@dataclass(frozen=True)
class Drafts:
    """`model` is None where the inventory names none; `chosen`: what it needs of the engine's arguments."""

    model: DraftModel | None = None
    chosen: Sequence[ChosenArgument] = ()
    notes: Sequence[str] = ()

    @property
    def words(self) -> list[str]:
        """The chosen arguments as a command line has them."""
        return presets.words({argument.flag: argument.value for argument in self.chosen})


def choose(service: Service, checkpoint: Checkpoint, engine: Engine, values: Values) -> Drafts:
    """The draft of `draft_model` and what the engine needs for it; `values` are the user's arguments.

    InputError for one that the engine refuses, and for one that its own argument names on a hub: every rank
    would fetch it at every start.
    """
    settings, (named, flag) = service.settings, engine.named_draft(values)
    model = draft_model(settings, service.draft)
    if named and model is not None:
        raise InputError(
            f"draft_model={model.id} and engine_args={flag} both name a draft model",
            where=service.given.get("draft_model"),
            hint=f"Leave {flag} out: draft_model sets it.",
        )
    if drafts.is_elsewhere(named):
        raise InputError(
            f"{flag} names {named}, which every rank would fetch from a hub at every start",
            where=service.given.get("engine_args"),
            hint=f"Write draft_model={named} and remove it from {flag}: Headfirst then fetches it once, "
            "sends it to all hosts and verifies it.",
        )
    if model is None:
        if settings.draft_model_revision:
            raise InputError(
                "draft_model_revision is set without draft_model",
                where=service.given.get("draft_model_revision"),
                hint="Set draft_model, or remove draft_model_revision.",
            )
        return Drafts(notes=[_NOT_COUNTED.format(flag=flag)] if named.startswith("/") else [])
    needs = engine.draft_needs(DraftRequest(checkpoint, model.kind, model.directory, values))
    if needs.problem:
        raise InputError(
            f"{engine.title} {engine.version} cannot draft with {model.id}: {needs.problem}.",
            where=service.given.get("draft_model"),
            hint="Choose another draft_model, or leave it out."
            + ("" if service.draft else f" It was not read. {_how_to_read(model)}"),
        )
    chosen = ChosenArgument.each(needs.arguments, needs.reason, needs.source)
    unread = [] if service.draft else [_unread(model)]
    return Drafts(model, chosen, [note for note in (needs.note, *unread) if note])


def refuse_task(service: Service, task: Task) -> None:
    """InputError for a draft beside a model that generates no text."""
    if service.settings.draft_model and task not in GENERATING:
        raise InputError(
            f"draft_model is set, and task={task} generates no text",
            where=service.given.get("draft_model"),
            hint="Remove draft_model.",
        )


_NOT_COUNTED = (
    "The plan does not count weights and KV cache of the draft model in {flag}, and does not distribute its "
    "folder. For both, set draft_model in the inventory."
)


def _how_to_read(model: DraftModel) -> str:
    if not model.from_hub:
        return "Its folder is on the head: `deploy plan --probe` reads it there, as `deploy up` does."
    return "The hub did not answer, or HF_HUB_OFFLINE forbids requests."


def _unread(model: DraftModel) -> str:
    return (
        f"config.json of the draft model {model.id} was not read: the plan does not count its weights "
        f"and KV cache. {_how_to_read(model)}"
    )
