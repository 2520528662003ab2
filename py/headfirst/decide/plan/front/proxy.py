"""The proxy's part of the plan: where people come in, and which ports are closed to them."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.headfirst.serving.plugins.plugin_utils import service_containers

from headfirst.common import container_names as names
from headfirst.decide.cluster.ports import PROXY_METRICS_PORT
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.containers.spec import Container, docker_run
from headfirst.decide.plan.types import Plan, PlannedService, ProxiedService, Proxy, Webui

# The branch that Debian 12 has, which the tests run.
OFFICIAL_IMAGE = "docker.io/library/haproxy:2.6"
# What control/images/recipes.py builds.
BUILT_IMAGE = "headfirst/haproxy:2.6.12"


def plan(cluster: Cluster, services: Sequence[PlannedService], page: Webui | None) -> Proxy:
    """The proxy on the host of the chat page; certificate and keys are not part of the plan."""
    settings, host = cluster.settings, cluster.webui
    built = settings.proxy_image_source == "build"
    image = settings.proxy_image or (BUILT_IMAGE if built else OFFICIAL_IMAGE)
    base = service_containers.BASES["proxy"]
    container = Container.model_validate({**base, "name": names.PROXY, "image": image})
    return Proxy(
        host=host.name,
        addresses=cluster.proxy_addresses,
        port=cluster.proxy_port,
        url=cluster.proxy_url,
        tls=settings.tls,
        names=cluster.proxy_names,
        services=[_service(cluster, service) for service in services],
        page=f"{page.address}:{page.port}" if page else "",
        metrics_address=host.address,
        metrics_port=PROXY_METRICS_PORT,
        closed_ports=_closed(services, page, host.name),
        container=container,
        docker_run=docker_run(container, settings.container_runtime),
    )


def api(plan: Plan, service: PlannedService) -> list[str]:
    """Where people ask a service: the base addresses for an OpenAI client."""
    if plan.proxy is None:
        return [f"{url}/v1" for url in service.urls]
    paths = {each.name: each.path for each in plan.proxy.services}
    return [f"{plan.proxy.url}{paths[service_name(service.name)]}"]


def page(plan: Plan) -> str | None:
    """Where people open the chat page; None where there is none."""
    return (plan.proxy or plan.webui).url if plan.webui else None


def service_name(name: str | None) -> str:
    """A service as the proxy and its keys name it."""
    return name or "api"


def _service(cluster: Cluster, service: PlannedService) -> ProxiedService:
    return ProxiedService(
        name=service_name(service.name),
        path=cluster.api_path(cluster.service(service.name)),
        servers=[url.removeprefix("http://") for url in service.urls],
        paths=service.paths_outside_v1,
        engines=[replica.engine_url.removeprefix("http://") for replica in service.replicas]
        if service.paths_outside_v1
        else [],
    )


def _closed(services: Sequence[PlannedService], page: Webui | None, proxy: str) -> dict[str, list[int]]:
    """Ports that answer in plain HTTP, or without a key."""
    ports: dict[str, list[int]] = {proxy: [PROXY_METRICS_PORT]}
    for service in services:
        for replica in service.replicas:
            ports.setdefault(replica.nodes[0].host, []).append(replica.engine_port)
        for router in service.routers:
            ports.setdefault(router.host, []).append(router.port)
    if page:
        ports.setdefault(page.host, []).append(page.port)
    return ports
