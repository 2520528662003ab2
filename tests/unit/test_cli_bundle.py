"""What `deploy bundle` and `deploy plan --bundle` print, and options that contradict each other."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from bundles import items, manifest_of
from headfirst.common.errors import InputError
from headfirst.control.bundle.manifest import BundleManifest, Image
from headfirst.control.bundle.store import Bundle
from headfirst.control.cli import verb
from headfirst.control.cli.bundle import print_made, print_sources, sources
from headfirst.control.deployment.bundled import Bundled
from headfirst.control.deployment.verbs.bundle import WrittenBundle

FILES = {"apt/debian-12/a.deb": b"package", "images/i.json": b"{}", "images/layers/1.tar": b"layer"}
IMAGE = Image(
    name="engine:1",
    id=f"sha256:{hashlib.sha256(FILES['images/i.json']).hexdigest()}",
    digest="sha256:digest\x1b[2J",
    config="images/i.json",
    layers=("images/layers/1.tar",),
)


@pytest.fixture
def manifest(tmp_path: Path) -> BundleManifest:
    return manifest_of(items(tmp_path, FILES), images=(IMAGE,))


def test_a_bundle_is_summed_up(manifest: BundleManifest, capsys: pytest.CaptureFixture[str]) -> None:
    print_made(
        WrittenBundle(Path("c.tar"), manifest, signed=False, existed=False, notes=["Bring it."]),
        as_json=False,
    )
    printed = capsys.readouterr()
    assert f"c.tar is written: bundle {manifest.id}" in printed.out
    assert "packages for debian-12: 1 files" in printed.out and "images: 2 files" in printed.out
    assert "note: Bring it." in printed.err and "not signed: --sign" in printed.err
    print_made(WrittenBundle(Path("c.tar"), manifest, signed=True, existed=True, notes=[]), as_json=False)
    printed = capsys.readouterr()
    assert "c.tar exists already and is complete" in printed.out and not printed.err


def test_a_bundle_as_json(manifest: BundleManifest, capsys: pytest.CaptureFixture[str]) -> None:
    print_made(WrittenBundle(Path("c.tar"), manifest, signed=True, existed=False, notes=[]), as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (
        found["event"] == "bundle"
        and found["id"] == manifest.id
        and found["files"] == 3
        and found["systems"] == ["debian-12"]
    )


def test_a_plan_lists_its_sources(manifest: BundleManifest, capsys: pytest.CaptureFixture[str]) -> None:
    bundled = Bundled([Bundle(Path("c.tar"), manifest, "me@example.org")], "lab", [Path("lab.ini")], ())
    print_sources(bundled)
    printed = capsys.readouterr().out
    assert f"bundle {manifest.id} alone (c.tar, signed by me@example.org)" in printed
    assert "image engine:1 (sha256:digest" in printed and "\x1b" not in printed
    assert sources(bundled)["signer"] == "me@example.org"


def test_options_that_contradict_each_other() -> None:
    assert verb.bundle_request(None, None, unsigned=False, older=False) is None
    for signers, unsigned, older in ((Path("s"), False, False), (None, True, False), (None, False, True)):
        with pytest.raises(InputError, match="need --bundle"):
            verb.bundle_request(None, signers, unsigned=unsigned, older=older)
    with pytest.raises(InputError, match="exclude each other"):
        verb.bundle_request([Path("b.tar")], Path("s"), unsigned=True, older=False)
