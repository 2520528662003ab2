"""What the images of services answered before, as it is kept on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headfirst.control.image_probe import kept
from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.engines.answers import Answers
from headfirst.decide.plan.launching import engine_image

Images = Mapping[str | None, str]
"""The IDs of the services' images on the hosts of their first heads, by the name of the service."""


def seen(cluster: Cluster) -> Images:
    """The images that had the services' names on the hosts that were asked last."""
    return {service.name: kept.seen(image_of(service)) for service in cluster.services}


def with_kept(cluster: Cluster, present: Images) -> Cluster:
    """The cluster with what these images answered before."""
    return with_answers(
        cluster,
        {
            name: told
            for name, id in present.items()
            if id and (told := kept.answers_of(cluster.service(name).settings.engine, id))
        },
    )


def with_answers(cluster: Cluster, answers: Mapping[str | None, Answers]) -> Cluster:
    """The cluster with these answers, by the name of the service; the others keep theirs."""
    services = (
        replace(service, answers=answers.get(service.name, service.answers)) for service in cluster.services
    )
    return replace(cluster, services=tuple(services))


def image_of(service: Service) -> str:
    """The image that the plan has for the service."""
    return engine_image(service, engines.of_service(service)[0])
