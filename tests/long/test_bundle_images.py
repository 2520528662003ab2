"""An image of a registry, pulled by a real engine into the parts of a bundle."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.control.bundle import images
from headfirst.control.machine import engine
from small_registry import registry

pytestmark = pytest.mark.lab


def quiet(what: str, done: int, total: int) -> None:
    """Progress that nobody reads."""


@pytest.mark.parametrize("pinned", [False, True])
def test_an_image_comes_with_its_digest(tmp_path: Path, pinned: bool) -> None:
    with registry() as (held, address):
        name = f"{address}/tiny@{held.digest}" if pinned else f"{address}/tiny:1"
        try:
            archive, digest = images.pulled(tmp_path, name, quiet)
            image, items = images.parts(archive, "tiny:1", digest)
            assert images.pulled(tmp_path, name, quiet) == (archive, digest)  # kept
        finally:
            client = engine.connect()
            assert client is not None
            client.images.remove(name, force=True)
    assert image.digest == held.digest and image.id == held.id
    assert b"".join(items[image.config].chunks()) == held.blobs[held.id]
    assert len(image.layers) == 1


def test_an_image_that_is_not_there_is_named(tmp_path: Path) -> None:
    with registry() as (_, address):
        name = f"{address}/none:1"
        with pytest.raises(NotReadyError, match="cannot be pulled") as caught:
            images.pulled(tmp_path, name, quiet)
    assert f"docker pull {name}" in str(caught.value.hint)
