"""What a plan needs from outside, and what a bundle lacks of it. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import HUBS, Name

from headfirst.control.bundle.systems import System
from headfirst.decide.frozen import Frozen
from headfirst.decide.model.adapter import AdapterConfig
from headfirst.decide.model.checkpoint import Checkpoint


class BundledWeights(Frozen):
    """What ranks load, from a hub or a folder. `folder` is the one in the bundle; "": not in it."""

    id: str
    source: Name
    revision: str | None
    folder: str

    @property
    def from_hub(self) -> bool:
        return self.source in HUBS


class BundledModel(BundledWeights):
    """A service's model or draft."""

    checkpoint: Checkpoint


class BundledAdapter(BundledWeights):
    """A service's LoRA adapter on a hub."""

    config: AdapterConfig


class Packages(Frozen):
    """Where the packages of roles come from, by what they are for; "" for what the plan does not install."""

    docker: str = ""
    podman: str = ""
    driver: str = ""  # branch, kind and source
    toolkit: str = ""
    rdma: str = ""


class BundleNeeds(Frozen):
    """All of it. Services are keyed by their group; "" is the only one of the short form."""

    headfirst: str
    cluster: str
    engines: dict[str, str]
    images: tuple[str, ...]
    models: dict[str, BundledModel] = {}
    drafts: dict[str, BundledModel] = {}  # of services with draft_model
    adapters: dict[str, dict[str, BundledAdapter]] = {}  # of a service by their names in the API
    systems: tuple[System, ...]
    kernels: tuple[str, ...]  # whose headers the driver is built with
    packages: Packages

    @property
    def weights(self) -> list[BundledWeights]:
        """Of all services."""
        names = {**self.models, **self.adapters, **self.drafts}
        return [each for name in names for each in self.weights_of(name)]

    def weights_of(self, name: str) -> list[BundledWeights]:
        """The model, the adapters and the draft of a service."""
        model, draft = self.models.get(name), self.drafts.get(name)
        adapters = self.adapters.get(name, {}).values()
        return [each for each in (model, *adapters, draft) if each]


_SOURCES = {
    "docker": "Docker from",
    "podman": "Podman from",
    "driver": "the driver",
    "toolkit": "the container toolkit",
    "rdma": "RDMA's packages from",
}


def lacks(have: BundleNeeds, want: BundleNeeds) -> Iterator[str]:
    """A sentence for each thing that `want` needs and the bundle of `have` does not hold."""
    if have.headfirst != want.headfirst:
        yield f"the bundle was made by Headfirst {have.headfirst}, and this is {want.headfirst}"
    for name, engine in want.engines.items():
        bundled = have.engines.get(name)
        if bundled != engine:
            yield f"{_service(name)} runs {engine}, and the bundle has {bundled or 'no engine of it'}"
    for image in _not_in(want.images, have.images):
        yield f"the image {image} is not in the bundle"
    for system in _not_in(want.systems, have.systems):
        yield f"hosts run {system}, and the bundle has packages of {_listed(have.systems)}"
    for kernel in _not_in(want.kernels, have.kernels):
        yield f"the headers of the kernel {kernel}, which the driver is built with, are not in the bundle"
    for name, what in _SOURCES.items():
        mine, bundled = getattr(want.packages, name), getattr(have.packages, name)
        if mine and mine != bundled:
            yield f"the plan takes {what} {mine}, and the bundle has {bundled or 'none'}"


def lacks_weights(
    name: str, verb: str, have: BundledWeights | None, id: str, source: str, revision: str | None
) -> str:
    """What the bundle lacks of a service's weights, as a sentence; "" for nothing, or a folder on the head.

    `verb`: what the service does with them.
    """
    if have is not None and (have.id, have.revision) == (id, revision):
        in_place = source not in HUBS
        return "" if have.folder or in_place else f"the weights of {id} are not in the bundle"
    if source not in HUBS and have is None:
        return f"{_service(name)} is not in the bundle"
    bundled = _model(have.id, have.revision) if have else "no weights of it"
    return f"{_service(name)} {verb} {_model(id, revision)}, and the bundle has {bundled}"


def _model(id: str, revision: str | None) -> str:
    return f"{id} at {revision}" if revision else id


def _not_in(needs: Sequence[object], bundled: Sequence[object]) -> list[object]:
    return [need for need in needs if need not in bundled]


def _listed(items: Sequence[object]) -> str:
    return ", ".join(map(str, items)) or "none"


def _service(name: str) -> str:
    return f"service {name}" if name else "the service"
