"""A plan with other settings, another model or more GPUs, made before it is proposed. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import DEFAULT_HUB
from pydantic import ValidationError

from headfirst.common.errors import InputError
from headfirst.decide.cluster.division import Members, divide, with_routers
from headfirst.decide.cluster.settings import Role, ServiceSettings
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.engines.layout import Machines
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan import service
from headfirst.decide.plan.types import Fit


class UnfitError(InputError):
    """The model does not fit into the memory of the GPUs."""


@dataclass(frozen=True)
class ServiceTrial:
    """The service `at` of these groups, which are the services of the cluster as its inventory lists them."""

    cluster: Cluster
    groups: tuple[Members, ...]
    at: int = 0
    role: Role | None = None  # of the replicas whose memory is looked at

    @classmethod
    def of(cls, cluster: Cluster, at: int) -> ServiceTrial:
        """A service of the cluster, on its hosts and beside the others."""
        groups = tuple(
            Members(s.name, s.settings, s.hosts, None, s.given, s.role_hosts) for s in cluster.services
        )
        return cls(cluster, groups, at)

    @classmethod
    def on_all_hosts(cls, cluster: Cluster) -> ServiceTrial:
        """The first service of the cluster, without the others."""
        first, settings = cluster.services[0], cluster.services[0].settings
        if len(cluster.services) > 1:  # the other GPUs are those of other services
            settings = settings.model_copy(update={"gpu_devices": []})
        return cls(cluster, (Members(None, settings, cluster.ranks, None, first.given),))

    @property
    def settings(self) -> ServiceSettings:
        """Those of the inventory."""
        return self.groups[self.at].settings

    @property
    def words(self) -> str:
        """The setting that has the engine's arguments for these replicas alone."""
        return f"{self.role}_engine_args" if self.role else "engine_args"

    @property
    def other_model(self) -> dict[str, object]:
        """What the inventory sets beside the name of another model: that it is a hub's, and no revision."""
        source: dict[str, object] = {} if self.settings.source.is_hub else {"model_source": DEFAULT_HUB}
        return source | ({"model_revision": ""} if self.settings.model_revision else {})

    def starting(
        self, checkpoint: Checkpoint, settings: Mapping[str, object], machines: Machines | None = None
    ) -> tuple[dict[str, object], Fit]:
        """The settings, with the longest request that fits where the engine ends without, and the memory; its
        `context` is what is allowed before.

        `machines`: of a replica, on hosts like the first; None: those that the inventory has. InputError
        where `deploy plan` refuses them; UnfitError where the model does not fit.
        """
        fit, settings = self._fit(checkpoint, settings, machines), dict(settings)
        if fit.shorter and not fit.context_given:
            words = settings.get(self.words, shlex.join(getattr(self.settings, self.words)))
            settings[self.words] = f"{words} {shlex.join(fit.shorter)}".strip()
            fit = self._fit(checkpoint, settings, machines).model_copy(update={"context": fit.context})
        if fit.fits is False:
            raise UnfitError(fit.reason)
        return settings, fit

    def _fit(self, checkpoint: Checkpoint, settings: Mapping[str, object], machines: Machines | None) -> Fit:
        group, groups = self.groups[self.at], list(self.groups)
        values = group.settings.model_dump(exclude_unset=True)
        hosts = group.hosts
        if machines:
            replicas = settings.get("replicas")
            each = (group.settings.prefill_replicas or 0) + (group.settings.decode_replicas or 0)
            count = machines.nodes * (replicas if isinstance(replicas, int) else each or 1)
            hosts = tuple(
                replace(hosts[0], name=f"{hosts[0].name}-{rank}", gpus=machines.ranks_per_node)
                for rank in range(count)
            )
        try:
            changed = ServiceSettings.model_validate({**values, **settings})
        except ValidationError as error:
            raise InputError(f"these settings exclude each other: {error}") from None
        groups[self.at] = replace(group, settings=changed, hosts=hosts)
        old = self.cluster.services[self.at]
        services = with_routers(divide(groups), [router.host for router in old.routers])
        draft = old.draft if changed.draft_model else None
        new = replace(services[self.at], adapters=old.adapters, draft=draft)
        planned = service.plan(replace(self.cluster, services=services), new, checkpoint)
        fits = {replicas[0].role: sized.fit for sized, replicas in planned.pools}
        unfit = next((fit for fit in fits.values() if fit.fits is False), None)
        return unfit or fits.get(self.role, planned.fit)
