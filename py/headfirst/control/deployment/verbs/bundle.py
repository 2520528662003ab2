"""`deploy bundle`: collects what a plan needs from outside into one file."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import HUBS, Name

from headfirst.common.errors import InputError, NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.bundle import (
    archive,
    images,
    manifest,
    packages,
    signature,
    systems,
    weights,
    wheels,
)
from headfirst.control.bundle.apt import Apt
from headfirst.control.bundle.items import Item, hashes
from headfirst.control.bundle.manifest import BundleManifest, Contents, Image
from headfirst.control.bundle.needs import BundledAdapter, BundledModel, BundledWeights, BundleNeeds
from headfirst.control.bundle.systems import RELEASES, System
from headfirst.control.deployment import bundle_needs
from headfirst.control.deployment.bundle_needs import unpinned
from headfirst.control.deployment.hosts import host_systems
from headfirst.control.deployment.hosts.host_systems import HostSystems
from headfirst.control.deployment.prepare import Prepared, prepare
from headfirst.control.deployment.running import artifacts
from headfirst.control.deployment.running.local_work import JobAdvance, ask_for_root, run_jobs
from headfirst.control.image_probe import kept
from headfirst.control.inventory.reading import role_values
from headfirst.control.machine import packages as machine
from headfirst.control.paths import cache_dir
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.plan import trust
from headfirst.decide.plan.types import Plan
from headfirst.decide.plan.weights.decide import at_revision, draft_model

Job = Callable[[JobAdvance], Any]


@dataclass(frozen=True)
class BundleOptions:
    """What `deploy bundle` was asked for.

    `systems` and `kernels` are those of the hosts; with `probe` the hosts are asked, and without both they
    run what this machine runs.
    """

    inventories: Sequence[Path]
    extra_vars: Sequence[str]
    output: Path
    weights: bool = False
    sign: Path | None = None
    since: Path | None = None
    systems: Sequence[str] = ()
    kernels: Sequence[str] = ()
    probe: bool = False


@dataclass(frozen=True)
class WrittenBundle:
    """The bundle. `existed`: the same one was there, and whole. `notes`: what the hosts need besides."""

    path: Path
    manifest: BundleManifest
    signed: bool
    existed: bool
    notes: list[str]


@dataclass
class Collected:
    """Files by path in the bundle, and the images that some of them are parts of."""

    items: dict[str, Item]
    images: list[Image]


def bundle(options: BundleOptions, reporter: Reporter) -> WrittenBundle:
    """Collect and write. Raises HeadfirstError on the first failure; run it again to go on."""
    prepared = prepare(options.inventories, options.extra_vars, probe=options.probe, online=True)
    cluster, plan = prepared.cluster, prepared.plan
    hosts = hosts_of(options, cluster)
    values = role_values(options.inventories, options.extra_vars, packages.ROLE_VALUES)[cluster.head.name]
    older = archive.read_head(options.since)[0] if options.since else None
    needs = bundle_needs.needs(cluster, plan, values, hosts)
    needs = with_weights(needs, prepared, weights=options.weights)
    ask_for_root(reporter)
    if missing := machine.missing(artifacts.packages(cluster, plan)):
        title, install = f"Install {', '.join(missing)} on this machine", partial(machine.install, missing)
        run_jobs(reporter, "packages", title, {"apt-get": install}, unit="%")
    jobs = _image_jobs(cluster, plan) | _package_jobs(cluster, hosts, values)
    jobs |= {"wheels": partial(_wheels, hosts)} | weight_jobs(needs)
    done, _ = run_jobs(reporter, "collect", "Collect images, packages and wheels", jobs)
    collected = _joined(done.values())
    write = partial(_write, options, collected, needs, older)
    written, _ = run_jobs(reporter, "write", f"Write {options.output.name}", {"bundle": write}, unit="bytes")
    new, exists = written["bundle"]
    return WrittenBundle(options.output, new, options.sign is not None, exists, notes(needs))


def hosts_of(options: BundleOptions, cluster: Cluster) -> HostSystems:
    """The systems and kernels to collect packages for. InputError where they are not known."""
    if options.probe:
        return host_systems.ask(cluster)
    system = systems.this_system()
    chosen_systems = tuple(systems.parse(text) for text in options.systems) or ((system,) if system else ())
    if not chosen_systems:
        raise InputError(
            "which system the hosts run is not known, and this machine runs another one",
            where="--system",
            hint=f"Name it: --system {next(iter(RELEASES))}. Or probe the hosts: --probe.",
        )
    return HostSystems(chosen_systems, tuple(options.kernels))


def with_weights(needs: BundleNeeds, prepared: Prepared, *, weights: bool) -> BundleNeeds:
    """The needs with models, adapters and drafts; with `weights` each has its folder in the bundle.

    NotReadyError for an adapter or a draft that was not read.
    """
    models: dict[str, BundledModel] = {}
    drafts: dict[str, BundledModel] = {}
    adapters: dict[str, dict[str, BundledAdapter]] = {}
    for service in prepared.cluster.services:
        settings, name, id = service.settings, service.name or "", service.model_id
        if settings.model_source != "demo":
            fields = _fields("", settings.model_source, id, trust.revision(settings), weights=weights)
            models[name] = BundledModel(**fields, checkpoint=prepared.checkpoints[service.name])
        for adapter in bundle_needs.hub_adapters(service):
            config = service.adapters.get(adapter.name)
            if config is None:
                raise _unread(service, f"adapter {adapter.id}", "adapters")
            fields = _fields("adapters", adapter.source, adapter.id, adapter.revision, weights=weights)
            adapters.setdefault(name, {})[adapter.name] = BundledAdapter(**fields, config=config)
        if draft := draft_model(settings, service.draft):
            if service.draft is None:
                raise _unread(service, f"draft model {draft.id}", "draft_model")
            fields = _fields("drafts", draft.source, draft.id, draft.revision, weights=weights)
            drafts[name] = BundledModel(**fields, checkpoint=service.draft)
    return needs.model_copy(update={"models": models, "adapters": adapters, "drafts": drafts})


def _fields(kind: str, source: Name, id: str, revision: str | None, *, weights: bool) -> dict[str, Any]:
    """Source, id and revision, and with `weights` the folder in the bundle, for these only.

    A folder is named by its last part, what is of a hub by its owner too.
    """
    key = hashlib.sha256(f"{source} {id}@{revision}".encode()).hexdigest()[:12]
    name = id if source in HUBS else id.rstrip("/").rpartition("/")[2]
    folder = str(PurePosixPath("models", key, kind, name + (at_revision(revision) if kind else "")))
    return {"source": source, "id": id, "revision": revision, "folder": folder if weights else ""}


def _unread(service: Service, what: str, setting: str) -> NotReadyError:
    return NotReadyError(
        f"the {what} was not read, and a bundle has its description",
        where=service.given.get(setting),
        hint="Make the bundle where its hub or folder can be read.",
    )


def _image_jobs(cluster: Cluster, plan: Plan) -> dict[str, Job]:
    """Images that are built here, are files, or come from registries, each as parts."""
    builds, named = artifacts.builds(cluster, plan), artifacts.engine_files(cluster)
    files = {artifacts.engine_image(plan.service(name)): path for name, path in named.items()}
    built = {name for build in builds for name in build.images}
    jobs: dict[str, Job] = {build.job: partial(_built, build, cluster) for build in builds}
    for name in bundle_needs.images(plan):
        if name in files:
            jobs[f"image {name}"] = partial(_from_file, files[name], unpinned(name))
        elif name not in built:
            jobs[f"image {name}"] = partial(_pulled, name)
    return jobs


def _built(build: artifacts.Build, cluster: Cluster, advance: JobAdvance) -> Collected:
    file = build.archive(cluster, advance).path
    return _joined(_from_file(file, name, advance) for name in build.images)


def _from_file(file: Path, name: str, advance: JobAdvance) -> Collected:
    image, items = images.parts(file, name)
    return Collected(items, [image])


def _pulled(name: str, advance: JobAdvance) -> Collected:
    file, digest = images.pulled(cache_dir("bundle", "pulled"), name, advance)
    image, items = images.parts(file, unpinned(name), digest)
    return Collected(items, [image])


def _package_jobs(cluster: Cluster, hosts: HostSystems, values: Mapping[str, Any]) -> dict[str, Job]:
    required = bundle_needs.requirements(cluster, hosts)

    def collect(system: System, advance: JobAdvance) -> Collected:
        repositories = packages.repositories(values, required, system)
        apt = Apt(cache_dir("bundle", "apt", str(system)), system, repositories)
        apt.update(advance)
        files = apt.collect(packages.groups(values, required, system, apt), advance)
        return Collected({f"apt/{system}/{name}": item for name, item in files.items()}, [])

    return {f"packages of {system}": partial(collect, system) for system in hosts.systems}


def _wheels(hosts: HostSystems, advance: JobAdvance) -> Collected:
    folder = cache_dir("bundle", "wheels")
    files = {f"controller/{name}": item for name, item in wheels.controller(folder, advance).items()}
    for python in sorted({RELEASES[system].python for system in hosts.systems}):
        tools = wheels.node_tools(folder / python, python, advance)
        files |= {f"wheels/{python}/{name}": item for name, item in tools.items()}
    return Collected(files, [])


def weight_jobs(needs: BundleNeeds) -> dict[str, Job]:
    """One job an ID: it collects every folder of it, one after another, since some share what is fetched."""

    def collect(models: Sequence[BundledWeights], advance: JobAdvance) -> Collected:
        return _joined(_weights(model, advance) for model in models)

    by_id: dict[str, dict[str, BundledWeights]] = {}
    for model in needs.weights:
        if model.folder:
            by_id.setdefault(model.id, {})[model.folder] = model
    return {f"weights of {id}": partial(collect, list(models.values())) for id, models in by_id.items()}


def _weights(model: BundledWeights, advance: JobAdvance) -> Collected:
    folder = Path(model.id)
    if model.from_hub:
        base, tools = cache_dir("bundle", "models"), cache_dir("bundle", "tools")
        folder = weights.fetched(base, tools, model.source, model.id, model.revision or "", advance)
    return Collected(weights.of_folder(folder, model.folder), [])


def _joined(parts: Iterable[Collected]) -> Collected:
    total = Collected({}, [])
    for part in parts:
        total.items |= part.items
        total.images += part.images
    return Collected(dict(sorted(total.items.items())), sorted(total.images, key=lambda image: image.name))


def _write(
    options: BundleOptions,
    collected: Collected,
    needs: BundleNeeds,
    older: BundleManifest | None,
    advance: JobAdvance,
) -> tuple[BundleManifest, bool]:
    """The manifest, and whether the bundle with it was there already."""
    digests = hashes(collected.items, advance)
    older_hashes = {file.sha256 for file in older.files.values()} if older else set()
    sizes = {path: item.size for path, item in collected.items.items()}
    contents = Contents(
        format=manifest.FORMAT,
        needs=needs,
        images=tuple(map(with_answers, collected.images)),
        since=older.id if older else "",
        carried={path: size for path, size in sizes.items() if digests[path] not in older_hashes},
        earlier={path: size for path, size in sizes.items() if digests[path] in older_hashes},
    )
    if there := _existing(options, contents, digests, advance):
        return there, True
    new = manifest.make(contents.model_copy(update={"made": int(time.time())}), digests)
    signed = signature.sign(new.sums, options.sign) if options.sign else b""
    options.output.parent.mkdir(parents=True, exist_ok=True)
    archive.write(options.output, new, signed, collected.items, advance)
    return new, False


def with_answers(image: Image) -> Image:
    """The image with what it answered on the hosts of this controller, where it was asked."""
    return image.model_copy(update={"answers": kept.documents(image.id)})


def _existing(
    options: BundleOptions, contents: Contents, digests: Mapping[str, str], advance: JobAdvance
) -> BundleManifest | None:
    """The output where it is this very bundle, whole, and signed where that is asked for."""
    if not options.output.is_file():
        return None
    try:
        there, signed = archive.read_head(options.output)
        same = manifest.make(contents.model_copy(update={"made": there.what.made}), digests)
        if there.sums != same.sums or bool(signed) != bool(options.sign):
            return None
        if options.sign and signature.sign(there.sums, options.sign) != signed:
            return None
        archive.unpack(options.output, there, lambda path, file: None, advance)
    except UntrustedError:
        return None
    return there


def notes(needs: BundleNeeds) -> list[str]:
    """What the hosts need besides the bundle, each with what to type."""
    settings = [
        *((model, "model_source=path and model=/its/folder") for model in needs.models.values()),
        *(
            (adapter, f"{name}=/its/folder in adapters")
            for adapters in needs.adapters.values()
            for name, adapter in adapters.items()
        ),
        *((draft, "draft_model=/its/folder") for draft in needs.drafts.values()),
    ]
    notes = [
        f"The weights of {each.id} are not in the bundle. Run again with --weights, or bring the folder to "
        f"the head and set {setting}."
        for each, setting in settings
        if each.from_hub and not each.folder
    ]
    if needs.packages.driver and not needs.kernels:
        notes.append(
            "No kernel's headers are in the bundle: hosts without NVIDIA's driver need them. Name what "
            "`uname -r` prints there: --kernel RELEASE, or probe the hosts: --probe."
        )
    return notes
