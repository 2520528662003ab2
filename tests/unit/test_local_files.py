"""Files on this machine that an inventory names: relative paths start at its folder, for every setting."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.common.errors import HeadfirstError
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment import bundled, certificate
from headfirst.control.deployment.running import artifacts
from headfirst.control.inventory.inventory import load
from headfirst.control.inventory.local_files import local_file
from headfirst.decide.cluster.types import Cluster

INVENTORY = (
    "[head]\nn1 ansible_host=192.0.2.7 cpu_cores=0-3\n[all:vars]\nengine_device=cpu\nmodel_source=demo\n"
)


def cluster_with(inventory: Path, *lines: str) -> Cluster:
    inventory.parent.mkdir(parents=True, exist_ok=True)
    inventory.write_text("\n".join([INVENTORY, *lines]))
    return load([inventory])


def test_a_relative_path_starts_at_the_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    cluster = cluster_with(Path("inventories/mine.ini"))
    assert local_file(cluster, "keys/tls.pem") == tmp_path / "inventories/keys/tls.pem"
    assert local_file(cluster, "~/tls.pem") == tmp_path / "home/tls.pem"
    assert local_file(cluster, "/etc/tls.pem") == Path("/etc/tls.pem")


def test_an_inventory_that_is_a_folder_is_the_start_itself(tmp_path: Path) -> None:
    cluster_with(tmp_path / "cluster" / "hosts")
    assert local_file(load([tmp_path / "cluster"]), "tls.pem") == tmp_path / "cluster/tls.pem"


@pytest.mark.parametrize(
    "setting, more, read",
    [
        ("registry_logins", [], artifacts.registry_logins),
        (
            "tls_certificate",
            ["tls=files", "tls_key=key.pem"],
            lambda cluster: certificate.certificate_of(cluster, Secrets()),
        ),
        ("bundle", ["bundle_signers=none"], lambda cluster: bundled.looked_at(None, cluster, [])),
    ],
)
def test_every_setting_reads_there(
    tmp_path: Path, setting: str, more: list[str], read: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    cluster = cluster_with(tmp_path / "mine.ini", f"{setting}=missing/file", *more)
    with pytest.raises(HeadfirstError) as raised:
        read(cluster)  # type: ignore[operator]
    assert str(tmp_path / "missing/file") in str(raised.value) + str(raised.value.where)
