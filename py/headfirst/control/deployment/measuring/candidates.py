"""What `deploy tune` tries: arguments of the presets for this model, and what `diagnose --tuning` advises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from headfirst.common.errors import HeadfirstError, InputError
from headfirst.control.deployment.prepare import Prepared
from headfirst.control.deployment.running.options import RunOptions
from headfirst.decide.cluster.types import Service
from headfirst.decide.diagnose.types import Advice
from headfirst.decide.engines.arguments import is_flag
from headfirst.decide.engines.presets import Preset, words
from headfirst.decide.frozen import Frozen


class TuneCandidate(Frozen):
    """Arguments that are tried together; "" is a flag without a value. `source`: the page, or the figures."""

    arguments: dict[str, str]
    why: str
    source: str

    def __str__(self) -> str:
        return " ".join(words(self.arguments))


def of_presets(prepared: Prepared, service: Service) -> list[TuneCandidate]:
    """Each rule of a preset that the engine and the GPUs' memory accept, and that is not in use."""
    used = {
        (argument.flag, argument.value) for argument in prepared.plan.service(service.name).chosen_arguments
    }
    candidates: dict[str, TuneCandidate] = {}
    for preset in get_args(Preset):
        try:
            replanned = prepared.replanned(service, preset=preset).service(service.name)
        except InputError:  # a preset that is not for this service
            continue
        rules: dict[tuple[str, str], dict[str, str]] = {}
        for argument in replanned.chosen_arguments:
            if (argument.flag, argument.value) not in used:
                rules.setdefault((argument.reason, argument.source), {})[argument.flag] = argument.value
        for (why, source), arguments in rules.items():
            if any(flag.endswith("-parser") for flag in arguments):  # changes answers, not their speed
                continue
            candidate = TuneCandidate(arguments=arguments, why=why, source=source)
            candidates.setdefault(str(candidate), candidate)
    return list(candidates.values())


def of_advice(advice: Sequence[Advice], earlier: Sequence[TuneCandidate]) -> list[TuneCandidate]:
    """The values that the rules of `diagnose --tuning` name, without those of `earlier`."""
    listed = {str(candidate) for candidate in earlier}
    candidates = [
        TuneCandidate(arguments={rule.setting: value}, why=rule.why, source="deploy diagnose --tuning")
        for rule in advice
        for value in rule.values
    ]
    return [candidate for candidate in candidates if str(candidate) not in listed]


def changed(options: RunOptions, service: Service, candidate: TuneCandidate) -> RunOptions:
    """The run with the candidate's arguments in place of the inventory's of the same names."""
    arguments = merged(service.settings.engine_args, candidate.arguments)
    return replace(options, engine_args={service.name: arguments})


def merged(engine_args: Sequence[str], arguments: Mapping[str, str]) -> list[str]:
    """`engine_args` without the flags of `arguments`, and these at the end."""
    replaced = {_option(flag) for flag in arguments}
    remaining: list[str] = []
    is_value_of_dropped = False
    for word in engine_args:
        if is_flag(word):
            is_value_of_dropped = _option(word) in replaced
        if not is_value_of_dropped:
            remaining.append(word)
    return remaining + words(arguments)


def _option(word: str) -> str:
    """One name for the spellings of an option: vLLM takes --a_b for --a-b, and --no-a is the other --a."""
    name = word.partition("=")[0].replace("_", "-")
    return f"--{name[5:]}" if name.startswith("--no-") else name


def refusal(prepared: Prepared, service: Service, candidate: TuneCandidate) -> str | None:
    """Why the plan refuses the candidate; None: it can be tried."""
    engine_args = merged(service.settings.engine_args, candidate.arguments)
    try:
        planned = prepared.replanned(service, engine_args=engine_args).service(service.name)
    except HeadfirstError as error:
        return error.what
    return planned.unfit
