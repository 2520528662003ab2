"""The engine of a service, and what it is asked once the service runs."""

from __future__ import annotations

from headfirst.control.credentials.secrets import Secrets
from headfirst.decide import engines
from headfirst.decide.cluster.types import Service
from headfirst.decide.engines.base import Engine, Metrics, Readiness
from headfirst.decide.model import families


def engine_of(service: Service) -> Engine:
    """The engine that the inventory names."""
    settings = service.settings
    engine, _ = engines.of_image(settings.engine, settings.engine_image, settings.engine_version)
    return engine


def readiness_of(service: Service) -> Readiness:
    """How to find out that a replica of the service serves."""
    return engine_of(service).readiness(service.settings.task or families.task_of_id(service.model_id))


def metrics_of(service: Service) -> Metrics | None:
    """The figures that a replica of the service publishes; None where the user has switched them off."""
    engine = engine_of(service)
    values = engine.check_arguments(service.settings.engine_args).values
    return engine.metrics if engine.publishes(values) else None


def known_key(secrets: Secrets | None, service: Service) -> str | None:
    """The key of the service's API, None where it is not known yet."""
    known = secrets is not None and (service.name is None or service.name in secrets.service_api_keys)
    return secrets.api_key(service.name) if secrets and known else None
