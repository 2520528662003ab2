"""A plan whose sources are a bundle: other settings, the same decisions, and a refusal of another plan."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import ACCEPTANCE_MODEL
from bundles import DEBIAN, items, manifest_of, needs, quiet, write
from draft_folders import EAGLE3, draft_folder
from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control import demo
from headfirst.control.bundle import archive, manifest
from headfirst.control.bundle.items import Item
from headfirst.control.bundle.manifest import Image
from headfirst.control.bundle.packages import ROLE_VALUES
from headfirst.control.bundle.systems import System
from headfirst.control.checkpoints.adapter import parse
from headfirst.control.deployment import bundle_needs
from headfirst.control.deployment.bundled import looked_at, proven
from headfirst.control.deployment.hosts.host_systems import HostSystems
from headfirst.control.deployment.prepare import Prepared, prepare
from headfirst.control.deployment.running.options import BundleRequest
from headfirst.control.deployment.verbs import bundle as making
from headfirst.control.deployment.verbs.bundle import BundleOptions
from headfirst.control.deployment.verbs.rehearse import ACCEPTANCE
from headfirst.control.image_probe import kept
from headfirst.control.inventory.inventory import load
from headfirst.control.inventory.reading import role_values
from headfirst.control.run.reporters.reporter import QuietReporter

SETTINGS = f"""\
[all:vars]
engine_device=cpu
cpu_cores=0-3
nic=eth0
engine_image=registry.example/sglang:v0.5.23@sha256:{"a" * 64}
webui_image=registry.example/page:1@sha256:{"a" * 64}
model_source=path
"""

INVENTORY = """\
[head]
node1 ansible_host=192.0.2.11

[workers]
node2 ansible_host=192.0.2.12

{settings}model={model}
"""

DRAFT = EAGLE3 | {"hidden_size": 192, "vocab_size": 768, "draft_vocab_size": 256}  # of the demo model


CONFIG_ID = f"sha256:{hashlib.sha256(b'{}').hexdigest()}"
ENGINE_IMAGE = Image(
    name="registry.example/sglang:v0.5.23", id=CONFIG_ID, digest="", config="images/c.json", layers=()
)
ANSWERS = {"engine": "sglang", "version": "0.5.99"}


def image_files(inventory: Path) -> dict[str, Item]:
    """The files of ENGINE_IMAGE."""
    return items(inventory.parent / "image", {ENGINE_IMAGE.config: b"{}"})


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    model = tmp_path / "models/headfirst-demo"
    with demo.checkpoint(demo.CHAT_MODEL) as source:
        shutil.copytree(source, model)
    path = tmp_path / "closed.ini"
    path.write_text(INVENTORY.format(settings=SETTINGS, model=model))
    return path


def bundle_of(
    inventory: Path,
    *,
    weights: bool = True,
    without: Sequence[str] = (),
    found: Mapping[str, Item] = MappingProxyType({}),
    images: tuple[Image, ...] = (),
    **change: object,
) -> BundleRequest:
    """A bundle as `deploy bundle` writes it, with a small file for each folder of weights.

    `without`: fields of its needs that an older bundle lacks; `found`: the files of its `images`; `change`:
    of its model.
    """
    prepared = prepare([inventory], (), probe=False, online=True)
    values = role_values([inventory], (), ROLE_VALUES)["node1"]
    plain = bundle_needs.needs(prepared.cluster, prepared.plan, values, HostSystems((DEBIAN,)))
    held = making.with_weights(plain, prepared, weights=weights)
    models = {"": held.models[""].model_copy(update=change)}
    held = held.model_copy(update={"models": models} | {field: {} for field in without})
    folders = [each.folder for each in held.weights if each.folder]
    weights_of = items(inventory.parent / "files", {f"{folder}/config.json": b"{}" for folder in folders})
    found = {**found, **weights_of}
    made = manifest_of(found, images=images)
    digests = {path: file.sha256 for path, file in made.files.items()}
    made = manifest.make(made.what.model_copy(update={"needs": held}), digests)
    archive.write(inventory.parent / "b.tar", made, b"", found, quiet)
    return BundleRequest([inventory.parent / "b.tar"], unsigned=True)


def closed(inventory: Path, *extra: str, request: BundleRequest | None = None) -> Prepared:
    """What a verb prepares with the bundle."""
    return prepare([inventory], extra, probe=False, bundle=request or bundle_of(inventory))


def test_the_plan_takes_images_without_a_digest_and_the_model_from_the_head(inventory: Path) -> None:
    online = prepare([inventory], (), probe=False).plan.services[0]
    (service,) = closed(inventory).plan.services
    container = service.replicas[0].nodes[0].container
    assert container.image == "registry.example/sglang:v0.5.23"
    assert service.model.startswith("/var/lib/headfirst/bundle/models/")
    assert service.model.endswith("/headfirst-demo")
    assert service.served_model_name == online.served_model_name
    assert service.weights.source == "path" and service.convert_to_bf16 == online.convert_to_bf16
    assert container.command == online.replicas[0].nodes[0].container.command


def test_the_model_is_described_by_the_bundle(inventory: Path) -> None:
    request = bundle_of(inventory)
    shutil.rmtree(inventory.parent / "models")
    assert closed(inventory, request=request).plan.services[0].weights.source == "path"


def test_what_the_image_answered_travels_with_it(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(inventory.parent / "open"))
    kept.keep_answers("sglang", ENGINE_IMAGE.id, ANSWERS, where="a test")
    request = bundle_of(inventory, found=image_files(inventory), images=(making.with_answers(ENGINE_IMAGE),))
    monkeypatch.setenv("XDG_CACHE_HOME", str(inventory.parent / "closed"))
    assert kept.answers_of("sglang", ENGINE_IMAGE.id) is None
    (service,) = closed(inventory, request=request).cluster.services
    assert service.answers is not None
    assert (service.answers.version, service.answers.image) == ("0.5.99", ENGINE_IMAGE.id)


def test_an_image_without_answers_is_not_taken_for_an_older_one_of_its_name(
    inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(inventory.parent / "cache"))
    older = "sha256:" + "e" * 64
    kept.keep_answers("sglang", older, ANSWERS, where="a test")
    kept.see(ENGINE_IMAGE.name, older)
    request = bundle_of(inventory, found=image_files(inventory), images=(making.with_answers(ENGINE_IMAGE),))
    assert making.with_answers(ENGINE_IMAGE) == ENGINE_IMAGE
    (service,) = closed(inventory, request=request).cluster.services
    assert service.answers is None


def test_hosts_of_a_bundle_are_accepted_with_the_model_for_it(inventory: Path) -> None:
    prepared = prepare([inventory], (), probe=False, bundle=bundle_of(inventory), model=ACCEPTANCE)
    (service,) = prepared.plan.services
    assert (service.model, service.weights.source) == (ACCEPTANCE_MODEL, "demo")
    assert prepared.checkpoints[None].architecture == "Qwen3ForCausalLM"


def test_an_inventory_may_name_its_bundle(inventory: Path) -> None:
    (path,) = bundle_of(inventory).paths
    named = prepare([inventory], [f"bundle={path}", "bundle_signers=none"], probe=False)
    assert named.bundle and named.plan == closed(inventory).plan
    with pytest.raises(InputError, match="no signer of the bundle is named"):
        prepare([inventory], [f"bundle={path}"], probe=False)
    assert prepare([inventory], [f"bundle={path}"], probe=False, online=True).bundle is None


def test_a_bundle_that_is_no_file_may_be_another_programs_word(inventory: Path) -> None:
    with pytest.raises(InputError) as refused:
        prepare([inventory], ["bundle=base-2026-10"], probe=False)
    assert refused.value.what == f"bundle: no such file: {inventory.parent}/base-2026-10"
    assert "headfirst_NAME" in str(refused.value.hint)
    assert prepare([inventory], ["bundle="], probe=False).bundle is None


def test_the_signers_of_the_inventory_are_for_the_bundle_of_the_command_line_too(inventory: Path) -> None:
    request = BundleRequest(bundle_of(inventory).paths)
    with pytest.raises(InputError, match="no signer of the bundle is named"):
        prepare([inventory], ["bundle_signers=none"], probe=False, bundle=request)
    with pytest.raises(HeadfirstError) as refused:
        prepare([inventory], [f"bundle_signers={inventory.parent / 'signers'}"], probe=False, bundle=request)
    assert "no signer" not in refused.value.what


def test_the_same_plan_is_taken(inventory: Path) -> None:
    prepared = closed(inventory)
    assert prepared.bundle
    prepared.bundle.refuse(prepared.cluster, prepared.plan)
    prepared.bundle.refuse(prepared.cluster, prepared.plan, HostSystems((DEBIAN,)))


def test_other_hosts_and_settings_are_refused_with_the_command(inventory: Path) -> None:
    change = "docker_engine_source=docker"
    prepared = closed(inventory, change, "ansible_password=hush")
    hosts = HostSystems((System(id="ubuntu", release="24.04"),), ("6.8.0-50-generic",))
    assert prepared.bundle
    with pytest.raises(NotReadyError) as caught:
        prepared.bundle.refuse(prepared.cluster, prepared.plan, hosts)
    assert "hosts run ubuntu-24.04, and the bundle has packages of debian-12" in caught.value.what
    assert "takes Docker from docker, and the bundle has distribution" in caught.value.what
    shown = f"-e {change} -e 'ansible_password=…' --weights"
    command = f"deploy bundle {inventory} -o {inventory.parent / 'b.tar'} {shown}"
    assert f"{command} --system ubuntu-24.04" in str(caught.value.hint)


def test_another_model_is_refused_before_the_plan(inventory: Path) -> None:
    request = bundle_of(inventory)
    with pytest.raises(NotReadyError, match="serves /srv/other, and the bundle has"):
        closed(inventory, "model=/srv/other", request=request)


TWO = """\
[first]
node1 ansible_host=192.0.2.11

[second]
node2 ansible_host=192.0.2.12

{settings}services=first second

[first:vars]
model={first}
served_model_name=one

[second:vars]
model={second}
served_model_name=two
"""


def test_folders_of_one_name_are_all_in_the_bundle(inventory: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "models/headfirst-demo", tmp_path / "b/headfirst-demo"
    shutil.copytree(first, second)
    (second / "README.md").write_text("another model\n")
    inventory.write_text(TWO.format(settings=SETTINGS, first=first, second=second))
    prepared = prepare([inventory], (), probe=False, online=True)
    held = making.with_weights(needs(), prepared, weights=True)
    collected = {path for job in making.weight_jobs(held).values() for path in job(quiet).items}
    models = [f"{held.models[name].folder}/README.md" for name in ("first", "second")]
    assert [path in collected for path in models] == [False, True]
    assert len({held.models[name].folder for name in ("first", "second")}) == 2


def test_revisions_of_a_model_are_all_in_the_bundle(
    inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for revision in ("", "v2"):
        (tmp_path / f"hub{revision}").mkdir()
        (tmp_path / f"hub{revision}/config.json").write_text(revision)

    def fetched(base: Path, tools: Path, source: str, id: str, revision: str, advance: object) -> Path:
        return tmp_path / f"hub{revision}"

    monkeypatch.setattr("headfirst.control.bundle.weights.fetched", fetched)
    held = making.with_weights(needs(), prepare([inventory], (), probe=False, online=True), weights=True)
    drafts = {
        name: held.models[""].model_copy(
            update={"id": "org/m", "source": "modelscope", "revision": revision, "folder": f"models/{name}"}
        )
        for name, revision in (("one", None), ("two", "v2"))
    }
    held = held.model_copy(update={"models": {}, "drafts": drafts})
    (job,) = making.weight_jobs(held).values()
    texts = {path: b"".join(item.chunks()) for path, item in job(quiet).items.items()}
    assert texts == {"models/one/config.json": b"", "models/two/config.json": b"v2"}


def test_weights_that_are_not_in_the_bundle_stay_on_the_head_and_those_of_a_hub_must_be(
    inventory: Path,
) -> None:
    (service,) = closed(inventory, request=bundle_of(inventory, weights=False)).plan.services
    assert service.model == str(inventory.parent / "models/headfirst-demo")
    request = bundle_of(inventory, weights=False, id="org/m", source="modelscope")
    with pytest.raises(NotReadyError, match="the weights of org/m are not in the bundle") as caught:
        closed(inventory, "model=org/m", "model_source=modelscope", request=request)
    assert "--weights" in str(caught.value.hint)


@pytest.mark.parametrize("folder", ["../../..", "models/../../../etc", "/etc", "apt/debian-12"])
def test_a_model_outside_the_models_of_the_bundle_is_refused(inventory: Path, folder: str) -> None:
    with pytest.raises(UntrustedError, match="folder"):
        bundle_of(inventory, folder=folder)


def test_the_draft_model_comes_from_the_bundle(inventory: Path, tmp_path: Path) -> None:
    lines = inventory.read_text()
    inventory.write_text(f"{lines}draft_model={draft_folder(tmp_path / 'd' / 'draft', DRAFT)}\n")
    prepared = prepare([inventory], (), probe=False, online=True)
    request = bundle_of(inventory)
    bundled = closed(inventory, request=request)
    (service,) = bundled.plan.services
    assert service.draft_model is not None and service.draft_model.kind == "eagle3"
    assert service.draft_model.id.startswith("/var/lib/headfirst/bundle/models/")
    assert service.draft_model.id.endswith("/drafts/draft") and service.draft_model.described_by == "folder"
    assert service.draft_model.directory == prepared.plan.services[0].draft_model.directory  # type: ignore[union-attr]
    missing = bundle_of(inventory, without=["drafts"])
    with pytest.raises(NotReadyError, match="the service is not in the bundle"):
        closed(inventory, request=missing)


def test_a_draft_on_a_hub_must_be_in_the_bundle(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    request = bundle_of(inventory)
    with pytest.raises(NotReadyError, match="drafts with org/eagle3, and the bundle has no weights of it"):
        closed(inventory, "draft_model=org/eagle3", request=request)
    with pytest.raises(NotReadyError, match="the draft model org/eagle3 was not read"):
        making.bundle(BundleOptions([inventory], ("draft_model=org/eagle3",), Path("b.tar")), QuietReporter())


def test_somebody_must_vouch_for_a_bundle(inventory: Path, tmp_path: Path) -> None:
    write(tmp_path / "b.tar", {"a": b"a"})
    with pytest.raises(InputError, match="no signer of the bundle is named"):
        looked_at(BundleRequest([tmp_path / "b.tar"]), load([inventory]), ())
    request = BundleRequest([tmp_path / "b.tar"], unsigned=True)
    assert looked_at(request, load([inventory]), ()).bundle.signer == ""


def test_hosts_of_an_unknown_system_must_be_named(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headfirst.control.bundle.systems.this_system", lambda: None)
    options = BundleOptions([inventory], (), Path("b.tar"))
    with pytest.raises(InputError, match="which system the hosts run is not known"):
        making.hosts_of(options, prepare([inventory], (), probe=False).cluster)
    named = making.hosts_of(
        replace(options, systems=["ubuntu-24.04"]), prepare([inventory], (), probe=False).cluster
    )
    assert named.systems == (System(id="ubuntu", release="24.04"),)


LORA = parse({"r": 8, "lora_alpha": 16, "target_modules": ["q_proj"], "use_dora": False}, "org/lora")


@pytest.fixture
def adapter(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The inventory with an adapter of a hub, which answers."""
    monkeypatch.setattr("headfirst.control.checkpoints.adapter.read_hub", lambda id, source, revision: LORA)
    inventory.write_text(f"{inventory.read_text()}adapters=a=org/lora\n")
    return inventory


def test_an_adapter_of_a_hub_comes_from_the_bundle(
    adapter: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    online, request = prepare([adapter], (), probe=False).plan.services[0], bundle_of(adapter)
    monkeypatch.delattr("headfirst.control.checkpoints.adapter.read_hub")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    prepared = closed(adapter, request=request)
    (lora,) = prepared.plan.services[0].adapters
    assert lora.id.startswith("/var/lib/headfirst/bundle/models/") and lora.id.endswith("/adapters/org/lora")
    assert (lora.source, lora.rank) == ("path", 8)
    assert lora.directory == online.adapters[0].directory
    assert prepared.plan.services[0].fit.terms == online.fit.terms
    (service,) = prepared.cluster.services
    assert service.adapters == {"a": LORA}
    assert prepared.bundle
    sent = proven(prepared.bundle, QuietReporter()).weights(service)
    assert [file["dest"] for file in sent] == [
        f"{service.settings.model}/config.json",
        f"{lora.id}/config.json",
    ]
    assert all(Path(file["src"]).read_bytes() == b"{}" for file in sent)


def test_revisions_of_an_adapter_have_folders_of_their_own(adapter: Path) -> None:
    text = adapter.read_text().replace("adapters=a=org/lora", "adapters=a=org/lora b=org/lora@v2")
    adapter.write_text(text)
    service = closed(adapter, request=bundle_of(adapter)).plan.services[0]
    first, second = (lora.id.partition("/adapters/")[2] for lora in service.adapters)
    assert (first, second) == ("org/lora", "org/lora--v2")


@pytest.mark.parametrize("weights", [True, False])
def test_a_bundle_without_an_adapter_of_a_hub_is_refused(adapter: Path, weights: bool) -> None:
    older = bundle_of(adapter, weights=weights, without=["adapters"])
    with pytest.raises(
        NotReadyError, match="has the adapter org/lora, and the bundle has no weights"
    ) as error:
        closed(adapter, request=older)
    assert f"deploy bundle {adapter} " in str(error.value.hint) and "--weights" in str(error.value.hint)


def test_another_adapter_than_the_bundles_is_refused(adapter: Path) -> None:
    """One in a folder stays on the head."""
    with pytest.raises(NotReadyError, match="has the adapter org/other, and the bundle has org/lora"):
        closed(adapter, "adapters=a=org/other")
    with pytest.raises(NotReadyError, match="has the adapter org/lora at v2, and the bundle has org/lora"):
        closed(adapter, "adapters=a=org/lora@v2")
    with pytest.raises(NotReadyError, match="the weights of org/lora are not in the bundle"):
        closed(adapter, request=bundle_of(adapter, weights=False))
    (service,) = closed(adapter, "adapters=a=/srv/lora").plan.services
    assert service.adapters[0].id == "/srv/lora"


def test_a_bundle_needs_the_description_of_an_adapter(
    inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(NotReadyError, match="the adapter org/lora was not read") as error:
        making.bundle(BundleOptions([inventory], ("adapters=a=org/lora",), Path("b.tar")), QuietReporter())
    assert str(error.value.where).startswith("extra variables")


def test_what_is_not_in_the_bundle_is_noted_with_its_setting(adapter: Path, tmp_path: Path) -> None:
    prepared = prepare(
        [adapter], (f"draft_model={draft_folder(tmp_path / 'd' / 'draft', DRAFT)}",), probe=False
    )
    held = making.with_weights(needs(), prepared, weights=False)
    drafts = {"": held.drafts[""].model_copy(update={"id": "org/draft", "source": "modelscope"})}
    lora, draft = making.notes(held.model_copy(update={"drafts": drafts}))
    assert "weights of org/lora are not in the bundle" in lora and "set a=/its/folder in adapters" in lora
    assert "weights of org/draft are not" in draft and "the head and set draft_model=/its/folder." in draft


def test_an_adapter_outside_the_models_of_the_bundle_is_refused(adapter: Path) -> None:
    request = bundle_of(adapter)
    made = archive.read_head(request.paths[0])[0]
    lora = made.what.needs.adapters[""]["a"].model_copy(update={"folder": "../../etc"})
    changed = made.what.needs.model_copy(update={"adapters": {"": {"a": lora}}, "engines": {}})
    digests = {path: file.sha256 for path, file in made.files.items()}
    with pytest.raises(UntrustedError, match="folder"):
        manifest.make(made.what.model_copy(update={"needs": changed}), digests)
