"""A bundle in the place of registries, package archives and hubs: `up --bundle`, `plan --bundle`."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansible_collections.headfirst.serving.plugins.module_utils import weight_sources
from ansible_collections.headfirst.serving.plugins.plugin_utils.node_wheel import build_node_wheel

from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.bundle.manifest import BundleManifest
from headfirst.control.bundle.needs import BundledModel, BundledWeights, BundleNeeds, lacks, lacks_weights
from headfirst.control.bundle.packages import KEPT_OUT, ROLE_VALUES
from headfirst.control.bundle.store import Accepted, Bundle, BundleStore, opened
from headfirst.control.bundle.systems import RELEASES
from headfirst.control.deployment import bundle_needs
from headfirst.control.deployment.bundle_needs import unpinned
from headfirst.control.deployment.hosts import host_systems
from headfirst.control.deployment.hosts.host_systems import HostSystems
from headfirst.control.deployment.kept_answers import Images, image_of
from headfirst.control.deployment.running.artifacts import Artifacts, Tarball
from headfirst.control.deployment.running.local_work import JobAdvance, run_jobs
from headfirst.control.deployment.running.options import BundleRequest
from headfirst.control.deployment.running.role_vars import HostVars
from headfirst.control.image_probe import kept
from headfirst.control.inventory.local_files import local_file, missing_bundle
from headfirst.control.inventory.names import without_secrets
from headfirst.control.inventory.reading import role_values
from headfirst.control.paths import cache_dir, state_dir
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import StageTime
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.model import catalogue
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan import trust
from headfirst.decide.plan.types import Plan
from headfirst.decide.plan.weights.decide import draft_model

FOLDER = "/var/lib/headfirst/bundle"
"""The folder of role `bundle` on every host."""

_ENVIRONMENT = {"APT_CONFIG": f"{FOLDER}/apt.conf"}
_IMAGE_SETTINGS = (
    "webui_image", "proxy_image", "router_image", "prometheus_image", "node_exporter_image",
    "dcgm_exporter_image", "grafana_image",
)  # fmt: skip


@dataclass(frozen=True)
class Bundled:
    """The bundle that a run takes everything from: the last one that was named."""

    bundles: Sequence[Bundle]
    cluster: str
    inventories: Sequence[Path]
    extra_vars: Sequence[str]

    @property
    def bundle(self) -> Bundle:
        return self.bundles[-1]

    @property
    def manifest(self) -> BundleManifest:
        return self.bundle.manifest

    def applied(self, cluster: Cluster) -> Cluster:
        """The cluster with sources that are in the bundle. NotReadyError where weights are not."""
        missing = [gap for service in cluster.services for gap in self._lacks_weights(service)]
        if missing:
            raise self._refusal(missing)
        images = {
            name: unpinned(image)
            for name in _IMAGE_SETTINGS
            if (image := getattr(cluster.settings, name)) is not None
        }
        return replace(
            cluster,
            settings=cluster.settings.model_copy(update=images),
            services=tuple(self._service(service) for service in cluster.services),
        )

    def images(self, cluster: Cluster) -> Images:
        """The engines' images that hosts get; what they answered is kept as if they were asked here."""
        bundled = {image.name: image for image in self.manifest.what.images}
        found = {}
        for service in cluster.services:
            if image := bundled.get(image_of(service)):
                kept.take(service.settings.engine, image.id, image.answers, where=str(self.bundle.path))
                found[service.name] = image.id
        return found

    def checkpoints(self, cluster: Cluster) -> dict[str | None, Checkpoint]:
        """The models by service, as they were when the bundle was made."""
        return {
            service.name: model.checkpoint.model_copy(update={"id": service.model_id})
            for service in cluster.services
            if (model := self._model(service))
        }

    def _model(self, service: Service) -> BundledModel | None:
        """The model of a service; a demo is in no bundle, and takes the place of one in an acceptance."""
        return None if service.settings.model_source == "demo" else self._needs.models.get(service.name or "")

    def refuse(self, cluster: Cluster, plan: Plan, hosts: HostSystems | None = None) -> None:
        """NotReadyError with all that the plan needs and the bundle lacks, and the command that makes one.

        Without `hosts` they are taken for those that the bundle was made for.
        """
        hosts = hosts or HostSystems(self._needs.systems)
        values = role_values(self.inventories, self.extra_vars, ROLE_VALUES)
        want = bundle_needs.needs(cluster, plan, values[cluster.head.name], hosts)
        if missing := list(lacks(self._needs, want)):
            raise self._refusal(missing, hosts)

    def _refusal(self, missing: Sequence[str], hosts: HostSystems | None = None) -> NotReadyError:
        words = ["deploy", "bundle", *map(str, self.inventories[:1]), "-o", str(self.bundle.path)]
        words += [word for path in self.inventories[1:] for word in ("-i", str(path))]
        words += [word for variable in self.extra_vars for word in ("-e", without_secrets(variable))]
        if any(each.folder for each in self._needs.weights) or any("weights" in gap for gap in missing):
            words.append("--weights")
        systems = hosts or HostSystems(self._needs.systems, self._needs.kernels)
        words += [word for system in systems.systems for word in ("--system", str(system))]
        words += [word for kernel in systems.kernels for word in ("--kernel", kernel)]
        return NotReadyError(
            "the bundle is of another plan:\n" + "\n".join(f"- {gap}" for gap in missing),
            where=str(self.bundle.path),
            hint=f"Where there is a network, make the one for this plan: {shlex.join(words)}",
        )

    @property
    def _needs(self) -> BundleNeeds:
        return self.manifest.what.needs

    def _lacks_weights(self, service: Service) -> Iterator[str]:
        """A sentence for the model, each adapter and the draft of a service that the bundle lacks."""
        settings, name, needs = service.settings, service.name or "", self._needs
        required: list[tuple[str, BundledWeights | None, str, str, str | None]] = []
        if settings.model_source != "demo":
            revision = trust.revision(settings)
            model = needs.models.get(name)
            required.append(("serves", model, service.model_id, settings.model_source, revision))
        for adapter in bundle_needs.hub_adapters(service):
            have = needs.adapters.get(name, {}).get(adapter.name)
            required.append(("has the adapter", have, adapter.id, adapter.source, adapter.revision))
        if draft := draft_model(settings, None):
            required.append(("drafts with", needs.drafts.get(name), draft.id, draft.source, draft.revision))
        return filter(None, (lacks_weights(name, *each) for each in required))

    def _service(self, service: Service) -> Service:
        settings, name = service.settings, service.name or ""
        model = self._model(service)
        changes: dict[str, Any] = {}
        if settings.engine_image is not None:
            changes["engine_image"] = unpinned(settings.engine_image)
        draft = self._needs.drafts.get(name) if settings.draft_model else None
        if draft is not None and draft.folder:
            changes |= {"draft_model": self._path(draft), "draft_model_revision": None}
        adapters = {
            adapter.name: self._needs.adapters[name][adapter.name]
            for adapter in bundle_needs.hub_adapters(service)
        }
        paths = {name: self._path(adapter) for name, adapter in adapters.items()}
        changes["adapters"] = settings.adapters | paths
        if model is not None and model.folder:
            changes |= {
                "model_source": weight_sources.FOLDER.name,
                "model": self._path(model),
                "weights_shared": "stage",
                "model_revision": None,
                "served_model_name": service.served_model_name,
            }
            commit = catalogue.trusted_commit(settings.model, settings.model_source)
            if settings.trust_remote_code is None and commit and model.revision == commit:
                changes["trust_remote_code"] = True  # what a hub's commit has earned, its copy has too
        return replace(
            service,
            settings=settings.model_copy(update=changes),
            adapters={name: adapter.config for name, adapter in adapters.items()},
            draft=draft.checkpoint if draft else None,
        )

    def _path(self, weights: BundledWeights) -> str:
        """Where the head gets it: a path that changes with the content and ends with the name."""
        return f"{FOLDER}/models/{self._key(weights)}/{weights.folder.removeprefix('models/')}"

    def _key(self, weights: BundledWeights) -> str:
        files = [
            (path, file.sha256)
            for path, file in self.manifest.files.items()
            if path.startswith(f"{weights.folder}/")
        ]
        return hashlib.sha256(repr(files).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Unpacked(Bundled):
    """A bundle of which every file was proven; `store` has them."""

    store: BundleStore
    proving: StageTime

    def artifacts(self, plan: Plan) -> Artifacts:
        """The images of the plan as files of this machine, and the wheel of the node tools."""
        bundled_images = {image.name: image for image in self.manifest.what.images}
        images = {
            name: Tarball(self.store.image(self.manifest, bundled_images[name]), on_node=False)
            for name in bundle_needs.images(plan)
        }
        return Artifacts(build_node_wheel(cache_dir("wheels")), images)

    def weights(self, service: Service) -> list[dict[str, str]]:
        """What role `bundle` sends to the head of a service, as its `bundle_files`."""
        settings = service.settings
        loaded = {settings.model, settings.draft_model, *settings.adapters.values()}
        return [
            file
            for weights in self._needs.weights_of(service.name or "")
            if weights.folder and (path := self._path(weights)) in loaded
            for file in self._files(weights, path)
        ]

    def _files(self, weights: BundledWeights, path: str) -> list[dict[str, str]]:
        folder, prefix = self.store.view(self.manifest, weights.folder), f"{weights.folder}/"
        names = [file.removeprefix(prefix) for file in self.manifest.files if file.startswith(prefix)]
        return [{"src": str(folder / name), "dest": f"{path}/{name}"} for name in names]


@dataclass(frozen=True)
class Closed:
    """A bundle and the hosts that get everything from it."""

    bundle: Unpacked
    hosts: HostSystems

    @classmethod
    def of(cls, bundle: Unpacked, cluster: Cluster, plan: Plan) -> Closed:
        """Asks the hosts of the run for their systems. NotReadyError where the bundle is of another plan."""
        hosts = host_systems.ask(cluster, [host.name for host in cluster.limited_hosts])
        bundle.refuse(cluster, plan, hosts)
        return cls(bundle, hosts)

    def variables(self, cluster: Cluster) -> HostVars:
        """Variables of every host with which roles take what is there, and those of role `bundle`."""
        store, manifest = self.bundle.store, self.bundle.manifest
        packages = {system: str(store.tar(manifest, f"apt/{system}")) for system in self.hosts.systems}
        wheels = {
            system: str(store.view(manifest, f"wheels/{RELEASES[system].python}"))
            for system in self.hosts.systems
        }
        files: dict[str, list[dict[str, str]]] = {}
        for service in cluster.services:
            files.setdefault(service.hosts[0].name, []).extend(self.bundle.weights(service))
        return {
            name: {
                "headfirst_environment": _ENVIRONMENT,
                "bundle_packages": packages[system],
                "bundle_files": files.get(name, []),
                "node_tools_wheelhouse": wheels[system],
                **KEPT_OUT,
            }
            for name, system in self.hosts.by_host
        }


def looked_at(request: BundleRequest | None, cluster: Cluster, extra_vars: Sequence[str]) -> Bundled:
    """The bundle that was asked for, or else the inventory's: signature verified, files not yet proven.

    InputError where no signer is allowed. UntrustedError for one that is older than the newest accepted one,
    unless `request` has `older`.
    """
    request = _asked(request, cluster)
    if request.signers is None and not request.unsigned:
        raise InputError(
            "no signer of the bundle is named",
            where=str(request.paths[-1]),
            hint="Name an allowed signers file (--signers FILE, or bundle_signers= in the inventory), or "
            "accept the bundle without a signature: --unsigned.",
        )
    bundles = [opened(path, None if request.unsigned else request.signers) for path in request.paths]
    if not request.older:
        _accepted().refuse_older(bundles[-1], cluster.name)
    return Bundled(bundles, cluster.name, cluster.inventories, extra_vars)


def _accepted() -> Accepted:
    return Accepted(state_dir("bundles"))


def _asked(request: BundleRequest | None, cluster: Cluster) -> BundleRequest:
    """The bundle that was asked for, or else the inventory's; so are its signers.

    That the inventory's needs no signature is for that one alone.
    """
    signers = cluster.settings.bundle_signers
    paths = [local_file(cluster, path) for path in cluster.settings.bundle]
    if request is None:
        inventory, where = cluster.inventories[0], cluster.given.get("bundle")
        if missing := missing_bundle(cluster.settings, inventory, where):
            raise missing
    asked = request or BundleRequest(paths, unsigned=signers == "none")
    if asked.signers or asked.unsigned or signers in (None, "none"):
        return asked
    return replace(asked, signers=local_file(cluster, signers))


def proven(bundled: Bundled, reporter: Reporter, *, check: bool = False) -> Unpacked:
    """The bundle with every file proven; `check` records nothing. UntrustedError for a changed one."""
    store = BundleStore(cache_dir("bundle"))

    def take(advance: JobAdvance) -> None:
        with store.only_one():
            for bundle in bundled.bundles:
                store.take(bundle, advance)
            store.prove_earlier(bundled.bundle, advance)
            if check:
                return
            store.keep(bundled.manifest)
        _accepted().record(bundled.bundle, bundled.cluster)

    _, seconds = run_jobs(reporter, "verify", "Verify the bundle", {"bundle": take}, unit="bytes")
    return Unpacked(bundled.bundles, bundled.cluster, bundled.inventories, bundled.extra_vars, store, seconds)
