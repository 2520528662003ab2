"""Where the key of a cluster's authority is, and what a controller does that needs it."""

from __future__ import annotations

import datetime
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import test_rotation
from collecting import Warnings
from headfirst.common.errors import NotReadyError
from headfirst.control.credentials import local_ca, secrets
from headfirst.control.credentials.identity import cluster_folder
from headfirst.control.deployment.certificate import keep_ca, with_certificate
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.verbs import credentials
from headfirst.control.deployment.verbs import up as verb
from headfirst.control.inventory.inventory import load, state_of
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.decide.cluster.types import Cluster
from test_rotation import CREDENTIALS, Site

NAMES = ["192.0.2.1"]


@cache
def read(text: str) -> Cluster:
    """An inventory, read once: Ansible needs a second for it."""
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as file:
        file.write(text)
        file.flush()
        return load([Path(file.name)])


def load_once(paths: Sequence[Path], extra_vars: Sequence[str] = ()) -> Cluster:
    """The same inventory for all tests, at another path each."""
    read_before = read(paths[0].read_text())
    return replace(read_before, name="prod", inventories=tuple(paths), files=state_of(paths))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(test_rotation, "load", load_once)
    monkeypatch.setattr(credentials, "load", load_once)
    return Site(tmp_path, monkeypatch, "tls=local-ca\n")


def texts_on_hosts(site: Site) -> str:
    return "".join(path.read_text() for path in site.hosts.root.rglob("*") if path.is_file())


def key_file(site: Site) -> Path:
    return cluster_folder(site.cluster) / "ca-key.pem"


def up(site: Site) -> list[str]:
    reporter = Warnings()
    verb.up(site.options, reporter)
    return reporter.texts


def days_before_its_end(site: Site, days: float) -> None:
    """The head has a certificate of the same authority that ends in so many days."""
    path = site.hosts.file("a", CREDENTIALS)
    record = json.loads(path.read_text())
    own = local_ca.LocalCa.model_validate(record["local_ca"])
    earlier = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=local_ca.CERTIFICATE_DAYS - days)
    older = local_ca.new_certificate(own, key_file(site).read_text(), NAMES, earlier)
    assert older
    path.write_text(json.dumps(record | {"local_ca": older.model_dump()}))


def test_the_key_of_the_authority_is_on_the_controller_only(site: Site) -> None:
    assert up(site) == []
    key = key_file(site).read_text()
    assert key_file(site).stat().st_mode & 0o777 == 0o600
    body = key.splitlines()[1]
    assert body not in texts_on_hosts(site)
    assert body not in secrets.credentials_file(site.cluster).read_text()
    # The one that the proxy needs is.
    own = site.on_head().local_ca
    assert own and own.key.splitlines()[1] in texts_on_hosts(site)
    assert up(site) == []
    assert key_file(site).read_text() == key


def test_up_removes_the_key_that_an_earlier_release_kept_on_the_head(site: Site) -> None:
    up(site)
    before = local_ca.new_authority("mine", NAMES)
    path = site.hosts.file("a", CREDENTIALS)
    own = before.shared.model_dump() | {"ca_key": before.ca_key}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"local_ca": own}))
    up(site)
    assert before.ca_key.splitlines()[1] not in texts_on_hosts(site)
    assert before.ca_key.splitlines()[1] not in secrets.credentials_file(site.cluster).read_text()


def test_an_authority_that_could_sign_for_every_site_is_replaced(site: Site) -> None:
    up(site)
    path = site.hosts.file("a", CREDENTIALS)
    record = json.loads(path.read_text())
    # Like that of an earlier release, this certificate has no constraints.
    record["local_ca"]["ca_certificate"] = record["local_ca"]["certificate"]
    path.write_text(json.dumps(record))
    texts = up(site)
    assert any("not limited to this cluster's names" in text and "must remove" in text for text in texts)
    own = site.on_head().local_ca
    assert own and local_ca.is_constrained(own)


@pytest.mark.parametrize("names", [[*NAMES, "com", "org"], [*NAMES, "0.0.0.0"]])
def test_an_authority_that_a_taken_head_made_is_not_handed_to_users(site: Site, names: list[str]) -> None:
    """Also where it is constrained, and for the cluster's names, but for others too."""
    up(site)
    trusted = key_file(site).with_name("ca.pem")
    before = trusted.read_text()
    path = site.hosts.file("a", CREDENTIALS)
    record = json.loads(path.read_text())
    issued = local_ca.new_authority("prod", names)
    theirs = local_ca.new_certificate(issued.shared, issued.ca_key, NAMES)
    assert theirs
    path.write_text(json.dumps(record | {"local_ca": theirs.model_dump()}))
    assert keep_ca(site.cluster, site.on_head()) is None
    assert trusted.read_text() == before
    assert any("not limited to this cluster's names" in text for text in up(site))
    own = site.on_head().local_ca
    assert own and local_ca.is_limited_to(own, NAMES)
    assert trusted.read_text() == own.ca_certificate


def test_an_authority_of_another_controller_is_taken_where_it_is_limited(site: Site) -> None:
    up(site)
    own = site.on_head().local_ca
    key_file(site).with_name("ca.pem").unlink()
    assert not up(site)
    assert site.on_head().local_ca == own


def test_another_name_needs_another_authority_and_users_read_so(site: Site) -> None:
    up(site)
    first, key = site.on_head().local_ca, key_file(site).read_text()
    path = site.options.inventories[0]
    path.write_text(path.read_text() + "tls_names=llm.example.org\n")
    signed = with_certificate(load_once([path]), site.on_head())
    assert signed.secrets.local_ca and first and signed.ca_key
    assert signed.secrets.local_ca.ca_certificate != first.ca_certificate
    assert local_ca.permits(signed.secrets.local_ca, ["llm.example.org", *NAMES])
    assert signed.ca_key != key
    assert signed.warning and str(cluster_folder(site.cluster) / "ca.pem") in signed.warning


def test_fewer_names_keep_the_authority(site: Site) -> None:
    wide = local_ca.new_authority("mine", [*NAMES, "llm.example.org"])
    key_file(site).write_text(wide.ca_key)
    key_file(site).with_name("ca.pem").write_text(wide.shared.ca_certificate)
    signed = with_certificate(site.cluster, secrets.Secrets(local_ca=wide.shared))
    assert signed.secrets.local_ca and not signed.ca_key and not signed.warning
    assert signed.secrets.local_ca.ca_certificate == wide.shared.ca_certificate
    assert local_ca.is_current(signed.secrets.local_ca, NAMES)


def test_a_certificate_is_renewed_by_the_same_authority(site: Site) -> None:
    up(site)
    before = site.on_head().local_ca
    days_before_its_end(site, 20)
    assert not [text for text in up(site) if "authority" in text]
    after = site.on_head().local_ca
    assert before and after and after.ca_certificate == before.ca_certificate
    assert local_ca.is_current(after, NAMES)


@pytest.mark.parametrize("days", [20, -1])
def test_a_controller_without_the_key_prints_what_to_do(site: Site, days: int) -> None:
    up(site)
    days_before_its_end(site, days)
    old = site.on_head().local_ca
    key_file(site).unlink()
    if days > 0:
        text = " ".join(up(site))
    else:
        with pytest.raises(NotReadyError, match="it ended on") as error:
            up(site)
        text = f"{error.value.what} {error.value.hint}"
    assert "not on this controller" in text
    assert str(key_file(site)) in text and "--rotate" in text
    assert site.on_head().local_ca == old
    credentials.rotate(site.options, QuietReporter())
    own = site.on_head().local_ca
    assert own and local_ca.is_current(own, NAMES)
    assert key_file(site).exists()


def test_check_mode_keeps_no_key(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "run_phases", lambda *_, **__: None)
    monkeypatch.setattr(verb, "_carry_out", lambda *_: None)
    verb._up(verb.prepare(), RunOptions(site.options.inventories, check=True), QuietReporter(), rotate=False)
    assert not key_file(site).exists()
