"""What is kept of bundles: files by their hashes, differences, folders and archives made of them."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils.image_archive import describe
from bundles import items, manifest_of, quiet, write
from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.bundle import archive, images
from headfirst.control.bundle.manifest import BundleManifest, Image
from headfirst.control.bundle.store import BundleStore, opened
from headfirst.control.images import archive as image_archive
from headfirst.control.images.archive import LayerFile, write_layer

OLD = {"apt/debian-12/a.deb": b"package", "images/layers/1.tar": b"layer"}
NEW = {**OLD, "images/layers/2.tar": b"another layer"}


@pytest.fixture
def store(tmp_path: Path) -> BundleStore:
    return BundleStore(tmp_path / "store")


def take(store: BundleStore, path: Path) -> None:
    with store.only_one():
        bundle = opened(path, None)
        store.take(bundle, quiet)
        store.prove_earlier(bundle, quiet)


def use(store: BundleStore, path: Path) -> BundleManifest:
    """What `deploy up --bundle` leaves of a bundle: its files, and the folders and archives made of them."""
    take(store, path)
    manifest = opened(path, None).manifest
    with store.only_one():
        store.keep(manifest)
    store.view(manifest, "apt")
    store.tar(manifest, "apt/debian-12")
    for image in manifest.what.images:
        store.image(manifest, image)
    return manifest


def blobs(tmp_path: Path) -> set[bytes]:
    return {path.read_bytes() for path in (tmp_path / "store/files").iterdir()}


def test_a_difference_carries_only_what_is_new(tmp_path: Path, store: BundleStore) -> None:
    older = write(tmp_path / "old.tar", OLD)
    newer = write(tmp_path / "new.tar", NEW, older=older)
    assert set(newer.carried) == {"images/layers/2.tar"} and newer.what.since == older.id
    with tarfile.open(tmp_path / "new.tar") as tar:
        assert "apt/debian-12/a.deb" not in tar.getnames()
    take(store, tmp_path / "old.tar")
    take(store, tmp_path / "new.tar")
    folder = store.view(newer, "images")
    assert {path.name for path in folder.rglob("*.tar")} == {"1.tar", "2.tar"}


def test_a_difference_alone_is_refused(tmp_path: Path, store: BundleStore) -> None:
    older = write(tmp_path / "old.tar", OLD)
    write(tmp_path / "new.tar", NEW, older=older)
    with pytest.raises(NotReadyError, match=f"difference to bundle {older.id}") as error:
        take(store, tmp_path / "new.tar")
    assert "--bundle OLD.tar --bundle" in str(error.value.hint)


def test_a_file_of_the_older_bundle_that_changed_is_refused(tmp_path: Path, store: BundleStore) -> None:
    older = write(tmp_path / "old.tar", OLD)
    write(tmp_path / "new.tar", NEW, older=older)
    take(store, tmp_path / "old.tar")
    for path in (tmp_path / "store/files").iterdir():
        path.write_bytes(b"changed")
    with pytest.raises(NotReadyError, match="is not here"):
        take(store, tmp_path / "new.tar")


def test_nothing_of_a_changed_bundle_is_kept(tmp_path: Path, store: BundleStore) -> None:
    path = tmp_path / "b.tar"
    write(path, OLD)
    path.write_bytes(path.read_bytes().replace(b"layer", b"lAyer"))
    with pytest.raises(UntrustedError, match="changed"):
        take(store, path)
    with store.only_one():
        assert blobs(tmp_path) == set()


def test_a_file_that_spoiled_here_is_replaced(tmp_path: Path, store: BundleStore) -> None:
    write(tmp_path / "b.tar", OLD)
    take(store, tmp_path / "b.tar")
    for path in (tmp_path / "store/files").iterdir():
        path.write_bytes(b"changed")
    take(store, tmp_path / "b.tar")
    assert blobs(tmp_path) == set(OLD.values())


def test_packages_are_one_archive_whose_name_follows_its_content(tmp_path: Path, store: BundleStore) -> None:
    first = write(tmp_path / "one.tar", OLD)
    take(store, tmp_path / "one.tar")
    same = write(tmp_path / "two.tar", NEW)
    take(store, tmp_path / "two.tar")
    other = write(tmp_path / "three.tar", {"apt/debian-12/a.deb": b"newer"})
    take(store, tmp_path / "three.tar")
    paths = [store.tar(one, "apt/debian-12") for one in (first, same, other)]
    assert paths[0] == paths[1] != paths[2]
    with tarfile.open(paths[2]) as tar:
        assert tar.getnames() == ["a.deb"] and tar.extractfile("a.deb").read() == b"newer"  # type: ignore[union-attr]


def test_an_image_comes_back_with_its_id(tmp_path: Path, store: BundleStore) -> None:
    saved = tmp_path / "saved.tar"
    layers = {
        name: lambda out, name=name: write_layer(out, [LayerFile(name, 3, head=b"abc")])
        for name in ("first", "second")
    }
    image_archive.write(saved, "engine:1", layers, {"Env": []})
    image, found = images.parts(saved, "engine:1")
    assert len(image.layers) == 2 and set(found) == {image.config, *image.layers}
    made = manifest_of(found, images=(image,))
    archive.write(tmp_path / "b.tar", made, b"", found, quiet)
    take(store, tmp_path / "b.tar")
    back = store.image(made, image)
    assert describe(str(back), "engine:1") == describe(str(saved), "engine:1")
    assert image_archive.image_id(back) == image.id == image_archive.image_id(saved)


def test_the_two_bundles_that_each_cluster_used_last_are_kept(tmp_path: Path, store: BundleStore) -> None:
    def bundle(number: int, cluster: str = "lab") -> Path:
        path = tmp_path / f"{cluster}{number}.tar"
        write(path, {"apt/debian-12/a.deb": f"{cluster} {number}".encode()}, cluster=cluster)
        return path

    used = [use(store, path) for path in (bundle(1), bundle(1, "b"), bundle(2), bundle(3), bundle(2))]
    assert blobs(tmp_path) == {b"lab 2", b"lab 3", b"b 1"}
    kept = {one.sha256 for one in used[1:]}
    assert {path.name for path in (tmp_path / "store/views").iterdir()} == kept
    assert len(list((tmp_path / "store/archives").iterdir())) == 3
    use(store, bundle(4))
    assert blobs(tmp_path) == {b"lab 2", b"lab 4", b"b 1"}


def test_the_image_of_a_bundle_that_is_kept_stays(tmp_path: Path, store: BundleStore) -> None:
    made = {}
    for number in range(3):
        path = tmp_path / f"{number}.tar"
        manifest, image = image_bundle(path, b"one" if number < 2 else b"another")
        use(store, path)
        made[number] = store.image(manifest, image)
    assert made[0] == made[1] and made[0].is_file()  # the bundle before the last one has it
    write(tmp_path / "new.tar", OLD)
    use(store, tmp_path / "new.tar")
    assert not made[0].exists() and made[2].is_file()


def image_bundle(path: Path, content: bytes, **claims: str) -> tuple[BundleManifest, Image]:
    """A bundle at `path` with an image of one layer, of which it states `claims` in place of the truth."""
    saved = path.with_suffix(".saved")
    members = [LayerFile("file", len(content), head=content)]
    image_archive.write(saved, "engine:1", {"only": lambda out: write_layer(out, members)}, {"Env": []})
    image, found = images.parts(saved, "engine:1")
    image = image.model_copy(update=claims)
    made = manifest_of(found, images=(image,))
    archive.write(path, made, b"", found, quiet)
    return made, image


def layer_of(path: Path) -> bytes:
    with tarfile.open(path) as tar:
        return tar.extractfile("0/layer.tar").read()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "id",
    [
        "sha256:" + "a" * 64,  # of another configuration
        "../../escaped",
        "sha256:../../../escaped",
        "sha256:" + "A" * 64,
        "",
    ],
)
def test_an_image_whose_id_is_not_the_hash_of_its_configuration_is_refused(
    tmp_path: Path, store: BundleStore, id: str
) -> None:
    with pytest.raises(UntrustedError, match="ID"):
        made, image = image_bundle(tmp_path / "b.tar", b"content", id=id)
        take(store, tmp_path / "b.tar")
        store.image(made, image)


def test_an_image_of_an_unsigned_bundle_is_never_that_of_another_one(
    tmp_path: Path, store: BundleStore
) -> None:
    """The stranger's image has the configuration of the signed one, and another layer at its path."""
    genuine, image = image_bundle(tmp_path / "signed.tar", b"genuine")
    with tarfile.open(tmp_path / "signed.saved") as tar:
        config = tar.extractfile(f"{image.id.removeprefix('sha256:')}.json").read()  # type: ignore[union-attr]
    found = items(tmp_path / "stranger", {image.config: config, image.layers[0]: b"stranger"})
    forged = manifest_of(found, images=(image,))
    archive.write(tmp_path / "unsigned.tar", forged, b"", found, quiet)
    take(store, tmp_path / "unsigned.tar")
    store.image(forged, image)
    take(store, tmp_path / "signed.tar")
    assert b"genuine" in layer_of(store.image(genuine, image))


def test_an_image_that_docker_saved_with_links_is_read(tmp_path: Path) -> None:
    saved, config = tmp_path / "saved.tar", {"rootfs": {"diff_ids": [f"sha256:{'1' * 64}"] * 2}}
    id = "a" * 64
    listing = [{"Config": f"{id}.json", "RepoTags": None, "Layers": ["x/layer.tar", "y/layer.tar"]}]
    files = items(
        tmp_path / "files",
        {
            f"{id}.json": json.dumps(config).encode(),
            "x/layer.tar": b"layer",
            "manifest.json": json.dumps(listing).encode(),
        },
    )
    with tarfile.open(saved, "w") as tar:
        for path, item in files.items():
            tar.add(item.source, path)
        link = tarfile.TarInfo("y/layer.tar")
        link.type, link.linkname = tarfile.SYMTYPE, "../x/layer.tar"
        tar.addfile(link)
    image, found = images.parts(saved, "engine:1", "sha256:digest")
    assert image.layers == (f"images/layers/{'1' * 64}.tar",) * 2 and image.digest == "sha256:digest"
    assert b"".join(found[image.layers[0]].chunks()) == b"layer"


def test_an_archive_without_the_image_is_refused(tmp_path: Path) -> None:
    saved = tmp_path / "saved.tar"
    with tarfile.open(saved, "w") as tar:
        tar.addfile(tarfile.TarInfo("x"))
    with pytest.raises(UntrustedError, match=r"no manifest\.json"):
        images.parts(saved, "engine:1")
