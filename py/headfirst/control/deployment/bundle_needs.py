"""What a plan needs from outside, as a bundle lists it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headfirst import __version__
from headfirst.control.bundle.needs import BundleNeeds
from headfirst.control.bundle.packages import Wanted, sources
from headfirst.control.deployment.hosts.host_systems import HostSystems
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.plan.host import devices
from headfirst.decide.plan.types import Adapter, Plan
from headfirst.decide.plan.weights.decide import adapters


def unpinned(image: str) -> str:
    """The image without a digest: an engine keeps none for an image that it loads from a file."""
    return image.partition("@")[0]


def images(plan: Plan) -> list[str]:
    """Every image of the plan once, as the plan names it."""
    return list(dict.fromkeys(container.image for container in plan.containers))


def requirements(cluster: Cluster, hosts: HostSystems) -> Wanted:
    """What the hosts need of devices' packages, by the inventory alone: both sides of a bundle read it."""
    gpus, rdma = bool(devices.hosts_with_driver(cluster)), devices.may_have_rdma(cluster)
    return Wanted(gpus, rdma, hosts.kernels if gpus else (), cluster.settings.container_runtime)


def needs(cluster: Cluster, plan: Plan, values: Mapping[str, Any], hosts: HostSystems) -> BundleNeeds:
    """All that the plan needs but weights. `values` are those of the roles' variables on one host."""
    required = requirements(cluster, hosts)
    return BundleNeeds(
        headfirst=__version__,
        cluster=cluster.name,
        engines={
            service.name or "": f"{service.engine} {service.engine_version}" for service in plan.services
        },
        images=tuple(sorted({unpinned(image) for image in images(plan)})),
        systems=hosts.systems,
        kernels=tuple(required.kernels),
        packages=sources(values, required),
    )


def hub_adapters(service: Service) -> list[Adapter]:
    """The LoRA adapters that a bundle has; one in a folder stays on the head."""
    return [adapter for adapter in adapters(service) if adapter.from_hub]
