"""LoRA adapters of a service: where each comes from and where it is on the nodes."""

from __future__ import annotations

from headfirst.common.errors import InputError
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.plan.types import Adapter


def adapters(settings: ServiceSettings, *, served_name: str, where: str | None) -> list[Adapter]:
    """One entry an adapter, in the order of the inventory. A hub id comes from the model's own hub; beside a
    model that comes from none, from ModelScope.

    Raises InputError at `where` for an adapter that has the model's own name in the API.
    """
    if served_name in settings.adapters:
        raise InputError(
            f"the adapter {served_name} has the name of the model itself",
            where=where,
            hint="Requests name the model or an adapter: choose another name in adapters=.",
        )
    hub = settings.model_source if settings.model_source == "huggingface" else "modelscope"
    folder = f"{settings.weights_dir.rstrip('/')}/adapters"
    return [
        Adapter(
            name=name,
            source="path" if id.startswith("/") else hub,
            id=id,
            directory=f"{folder}/{name}",
        )
        for name, id in settings.adapters.items()
    ]
