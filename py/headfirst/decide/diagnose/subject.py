"""The engine whose ranks are diagnosed: what its log reports, its flags, how it is asked for its health."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import Profile, profile

from headfirst.decide.engines.base import Diagnostics, Engine, Metrics, Readiness


@dataclass(frozen=True)
class Subject:
    """`model` is its name in the API, and `api_key` what the API needs."""

    log: Profile
    about: Diagnostics
    metrics: Metrics
    readiness: Readiness
    model: str = ""
    api_key: str = ""


def subject(engine: Engine, readiness: Readiness, model: str = "", api_key: str = "") -> Subject:
    """What a diagnosis needs of an engine."""
    return Subject(profile(engine.log()), engine.diagnostics, engine.metrics, readiness, model, api_key)
