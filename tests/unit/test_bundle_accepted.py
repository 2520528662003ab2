"""A bundle that somebody signed long ago is not taken for the present one."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from bundles import manifest_of, needs, quiet
from headfirst.common.untrusted import UntrustedError
from headfirst.control.bundle import archive, manifest, signature
from headfirst.control.deployment.bundled import Bundled, looked_at, proven
from headfirst.control.deployment.running.options import BundleRequest
from headfirst.control.deployment.verbs import bundle as making
from headfirst.control.deployment.verbs.bundle import BundleOptions, Collected
from headfirst.control.run.reporters.plain import PlainReporter
from headfirst.decide.cluster.types import Cluster
from test_bundle_signature import made_key, signers


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return made_key(tmp_path / "key")


def signed(path: Path, key: Path, made: int, cluster: str = "lab") -> Path:
    """An empty bundle of a cluster, made at this second."""
    what = manifest_of({}).what.model_copy(update={"made": made, "needs": needs(cluster=cluster)})
    whole = manifest.make(what, {})
    archive.write(path, whole, signature.sign(whole.sums, key), {}, quiet)
    return path


def cluster(name: str = "lab") -> Cluster:
    settings = SimpleNamespace(bundle=[], bundle_signers=None)  # the request names the bundle
    return cast(Cluster, SimpleNamespace(name=name, inventories=(), settings=settings))


def accept(
    path: Path, key: Path | None, *, older: bool = False, user: str = "lab", check: bool = False
) -> Bundled:
    """What `deploy up --bundle` of the cluster `user` does with it before any host is asked."""
    request = BundleRequest([path], signers(key) if key else None, unsigned=key is None, older=older)
    bundled = looked_at(request, cluster(user), ())
    proven(bundled, PlainReporter(sys.stdout), check=check)
    return bundled


def test_an_older_bundle_is_refused_until_it_is_asked_for(tmp_path: Path, key: Path) -> None:
    old, new = (
        signed(tmp_path / "old.tar", key, 1_000_000_000),
        signed(tmp_path / "new.tar", key, 1_700_000_000),
    )
    for path in (old, new, new):
        accept(path, key)
    with pytest.raises(UntrustedError, match=r"2001-09-09.*2023-11-14.*accepted for lab") as caught:
        accept(old, key)
    assert "--older-bundle" in str(caught.value.hint)
    accept(old, key, older=True)
    with pytest.raises(UntrustedError):
        accept(old, key)


def test_an_older_bundle_of_another_cluster_or_signer_is_refused(tmp_path: Path, key: Path) -> None:
    """Neither makes it newer for the cluster that would use it."""
    accept(signed(tmp_path / "new.tar", key, 1_700_000_000), key)
    with pytest.raises(UntrustedError):
        accept(signed(tmp_path / "a.tar", key, 1_000_000_000, "other"), key)
    second = made_key(tmp_path / "second")
    listed = signers(second)
    listed.write_text(listed.read_text().replace("me@example.org", "they@example.org"))
    old = signed(tmp_path / "b.tar", second, 1_000_000_000)
    with pytest.raises(UntrustedError, match="2001-09-09"):
        looked_at(BundleRequest([old], listed), cluster(), ())


def test_other_clusters_and_unsigned_bundles_are_apart(tmp_path: Path, key: Path) -> None:
    old = signed(tmp_path / "old.tar", key, 1_000_000_000)
    accept(signed(tmp_path / "a.tar", key, 1_700_000_000), key, user="other")
    accept(signed(tmp_path / "b.tar", made_key(tmp_path / "stranger"), 1_700_000_000), None)
    assert accept(old, key).bundle.signer == "me@example.org"


def test_a_bundle_that_was_not_proven_is_not_recorded(tmp_path: Path, key: Path) -> None:
    request = BundleRequest([signed(tmp_path / "new.tar", key, 1_700_000_000)], signers(key))
    looked_at(request, cluster(), ())
    accept(signed(tmp_path / "old.tar", key, 1_000_000_000), key)


def test_check_mode_accepts_no_bundle_for_later_runs(tmp_path: Path, key: Path) -> None:
    accept(signed(tmp_path / "new.tar", key, 1_700_000_000), key, check=True)
    accept(signed(tmp_path / "old.tar", key, 1_000_000_000), key)


def test_the_same_bundle_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = BundleOptions([], (), tmp_path / "b.tar")
    times = iter((1_700_000_000, 1_700_000_001))
    monkeypatch.setattr(making.time, "time", lambda: next(times))
    first, kept = making._write(options, Collected({}, []), needs(), None, quiet)
    assert first.what.made == 1_700_000_000 and not kept
    assert making._write(options, Collected({}, []), needs(), None, quiet) == (first, True)
    second, kept = making._write(options, Collected({}, []), needs(cluster="other"), None, quiet)
    assert second.what.made == 1_700_000_001 and not kept
