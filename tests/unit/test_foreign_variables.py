"""Inventories of other teams: settings start with headfirst_, variables of other programs are left alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from headfirst.common.errors import InputError
from headfirst.control.deployment.measuring.written import write_arguments
from headfirst.control.inventory.edit import with_spare
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.settings import SETTING_NAMES

# Names that programs of others use, and what they mean there.
ORDINARY = {
    "port": 22,
    "host": "db1",
    "user": "ops",
    "tags": "[gpu, prod]",
    "role": "inference",
    "name": "a",
    "hostname": "gpu-01",
    "fqdn": "gpu-01.example",
    "ip": "192.0.2.1",
    "interface": "bond0",
    "mtu": 9000,
    "gateway": "192.0.2.254",
    "dns_servers": "[192.0.2.53]",
    "ntp_servers": "[192.0.2.123]",
    "timezone": "UTC",
    "domain": "example",
    "region": "eu",
    "zone": "a",
    "rack": 7,
    "datacenter": "x",
    "env": "prod",
    "environment_name": "prod",
    "stage": "prod",
    "owner": "ml",
    "team": "ml",
    "cost": 1,
    "engine": "postgres",
    "image": "debian-12",
    "model": "R750",
    "model_name": "R750",
    "task": "serve",
    "address": "Rue 1",
    "gpu": "yes",
    "gpus": "eight",
    "nic": "[bond0]",
    "lab": "berlin",
    "replicas": "two",
    "password": "x",
    "key": "x",
    "token": "x",
    "packages": "[vim]",
    "monitoring": "zabbix",
    "backup": "daily",
    "docker_version": 27,
    "kernel": "6.1",
    "swap": 0,
    "drivers": "[ixgbe]",
    "grafana": "https://g",
    "router": "192.0.2.254",
    "cluster": "a",
    "cluster_name": "Prod Cluster",
    "proxy_port": 3128,
    "preset": "base",
    "version": 3,
}
PROTECTING = {"tls": "true", "api_key_file": "/x", "proxy": "http://192.0.2.3:3128", "bundle": "base-2026-10"}
OURS = """\
all:
  vars:
    headfirst_model: org/model
    headfirst_engine: vllm
{foreign}
  children:
    head:
      hosts:
        n1: {{ansible_host: 192.0.2.11, headfirst_gpus: 8}}
"""


def written(folder: Path, foreign: str = "") -> Path:
    path = folder / "hosts.yml"
    path.write_text(OURS.format(foreign=foreign))
    return path


def lines(variables: dict[str, object]) -> str:
    return "\n".join(f"    {name}: {value}" for name, value in variables.items())


def refusal(path: Path, *extra: str) -> InputError:
    with pytest.raises(InputError) as caught:
        load([path], extra)
    assert caught.value.exit_code == 2
    return caught.value


def test_no_ordinary_name_is_refused_or_read(tmp_path: Path) -> None:
    assert len(ORDINARY) >= 53
    cluster = load([written(tmp_path, lines(ORDINARY))])
    settings, host = cluster.services[0].settings, cluster.head
    assert (settings.model, settings.engine, settings.replicas) == ("org/model", "vllm", None)
    assert (host.gpus, host.gpu, host.nic, host.address) == (8, None, None, "192.0.2.11")
    assert cluster.name == "hosts"
    place = f"{tmp_path}/hosts.yml:{5 + list(ORDINARY).index('engine')}"
    assert (
        f"{place}: engine is ignored: settings here start with headfirst_ (headfirst_engine)" in cluster.notes
    )
    # One for each name that is a setting, and none for the others.
    assert len(cluster.notes) == len(ORDINARY.keys() & SETTING_NAMES)


def test_what_protects_is_not_ignored_in_silence(tmp_path: Path) -> None:
    error = refusal(written(tmp_path, lines(PROTECTING)))
    assert error.what.startswith("4 variables are wrong:\n")
    for number, name in enumerate(PROTECTING, 5):
        assert f"{tmp_path}/hosts.yml:{number}: {name} would be ignored" in error.what
        assert f"headfirst_own_variables={name}" in error.what
    listed = f"    headfirst_own_variables: [{', '.join(PROTECTING)}]\n{lines(PROTECTING)}"
    cluster = load([written(tmp_path, listed)])
    assert (cluster.settings.tls, cluster.has_proxy, cluster.settings.bundle) == ("none", False, [])
    assert not cluster.notes


def test_a_misspelled_setting_is_refused_with_its_prefix(tmp_path: Path) -> None:
    error = refusal(written(tmp_path, "    headfirst_modle: x\n    engin_port: 1"))
    assert error.what == "unknown variable headfirst_modle"
    assert error.where == f"{tmp_path}/hosts.yml:5"
    assert str(error.hint).startswith("Did you mean headfirst_model?")


def test_variables_of_roles_have_no_prefix(tmp_path: Path) -> None:
    error = refusal(written(tmp_path, "    headfirst_weights_port: 7000"))
    assert "Did you mean weights_port?" in str(error.hint)
    error = refusal(written(tmp_path, "    docker_engine_data_rot: /x"))
    assert "Did you mean docker_engine_data_root?" in str(error.hint)
    assert load([written(tmp_path, "    weights_port: 7100")]).head.weights_port == 7100


def test_the_only_misspelled_setting_of_a_plain_inventory(tmp_path: Path) -> None:
    (tmp_path / "a.ini").write_text("[head]\nn1 ansible_host=192.0.2.11\n[all:vars]\nheadfirst_modle=x\n")
    error = refusal(tmp_path / "a.ini")
    assert str(error.hint).startswith("Did you mean headfirst_model?")


@pytest.mark.parametrize("where", ["group_vars/all.yml", "host_vars/n1.yml", "extra"])
def test_one_prefixed_name_anywhere_is_enough(tmp_path: Path, where: str) -> None:
    (tmp_path / "a.ini").write_text(
        "[head]\nn1 ansible_host=192.0.2.11\n[all:vars]\nengine=postgres\nmodel=R750\n"
    )
    path, extra = tmp_path / where, []
    if where == "extra":
        extra = ["headfirst_model=org/model"]
    else:
        path.parent.mkdir()
        path.write_text("headfirst_model: org/model\n")
    settings = load([tmp_path / "a.ini"], extra).services[0].settings
    assert (settings.model, settings.engine) == ("org/model", "sglang")


def test_a_person_who_types_a_plain_name_means_a_setting(tmp_path: Path) -> None:
    error = refusal(written(tmp_path), "model=org/other")
    assert error.where == "extra variables (-e)"
    assert str(error.hint).startswith("Write headfirst_model; ")
    other = load([written(tmp_path)], ["headfirst_model=org/other"])
    assert other.services[0].settings.model == "org/other"


SERVICES = """\
[chat]
n1 ansible_host=192.0.2.11 model=R750
n2 ansible_host=192.0.2.12
[chat:vars]
headfirst_model=org/chat
headfirst_replicas=2
[databases]
d1 ansible_host=192.0.2.13
[databases:vars]
model=postgres
[all:vars]
headfirst_engine=vllm
headfirst_gpus=8
"""


def test_services_are_the_groups_that_set_the_prefixed_model(tmp_path: Path) -> None:
    (tmp_path / "a.ini").write_text(SERVICES)
    cluster = load([tmp_path / "a.ini"])
    assert [service.name for service in cluster.services] == ["chat"]
    assert [host.name for host in cluster.hosts] == ["n1", "n2"]
    assert (cluster.services[0].settings.replicas, cluster.services[0].settings.engine) == (2, "vllm")
    assert cluster.services[0].given["replicas"] == f"{tmp_path}/a.ini:6"
    (tmp_path / "a.ini").write_text(SERVICES.replace("model=R750", "headfirst_replicas=1"))
    error = refusal(tmp_path / "a.ini")
    assert error.what.startswith("headfirst_replicas is a setting of a service")
    assert error.where == f"{tmp_path}/a.ini:2"


def spare(folder: Path) -> Path:
    path = folder / "b.ini"
    path.write_text(
        "[head]\nn1 ansible_host=192.0.2.11\n[spares]\nn2 ansible_host=192.0.2.12\n[all:vars]\n"
        "headfirst_model=org/model\nmodel=R750\nengine_args=none\n"
    )
    return path


def test_edits_keep_the_prefix(tmp_path: Path) -> None:
    path = spare(tmp_path)
    path.write_text(with_spare(path, "n1", "n2", keep=True))
    assert load([path]).head.name == "n2"
    write_arguments([path], ["--max-num-seqs", "8"])
    assert "\nheadfirst_engine_args=--max-num-seqs 8\n" in path.read_text()
    assert "\nengine_args=none\n" in path.read_text()
    write_arguments([path], ["--max-num-seqs", "9"])
    assert path.read_text().count("headfirst_engine_args") == 1
    assert load([path]).services[0].settings.engine_args == ["--max-num-seqs", "9"]


WRONG = """\
[head]
n1 ansible_host=192.0.2.11 ansible_port=ssh gpus=eight

[workers]
n2 ansible_host=192.0.2.12 engine_port=31000

[all:vars]
model=org/model
engine_prot=1
preset=fast
weights_members=a
engine_version={{ nowhere }}
weights_port=ten
own_variables=site_*
site_router=1
"""
STARTS = (
    "a.ini:2 ansible_port=ssh is not a port number",
    "a.ini:2 gpus=eight: input should be a valid integer",
    "a.ini:5 engine_port is a setting of the whole cluster, but n2 has '31000'",
    "a.ini:9 unknown variable engine_prot. Did you mean engine_port?",
    "a.ini:10 preset=fast: input should be 'latency'",
    "a.ini:11 weights_members is decided by the plan.",
    "a.ini:12 engine_version: ",
    "a.ini:13 argument 'weights_port' is of type str",
    "group_vars/workers.yml:1 lab_cpus=many: input should be",
    "group_vars/workers.yml:2 tls is a setting of the whole cluster",
    "extra variables unknown variable modle.",
)


def test_every_wrong_variable_is_in_one_error(tmp_path: Path) -> None:
    """In the order of files and lines; what is wrong in group_vars too."""
    path = tmp_path / "a.ini"
    path.write_text(WRONG)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "workers.yml").write_text("lab_cpus: many\ntls: true\n")
    error = refusal(path, "modle=x")
    first, *found = error.what.splitlines()
    assert first == f"{len(found)} variables are wrong:"
    at = re.compile(rf"- (?:{tmp_path}/)?(.+?): ")
    told = [at.sub(r"\1 ", line.replace(" (-e)", "")) for line in found]
    assert [line[: len(start)] for line, start in zip(told, STARTS, strict=True)] == [*STARTS]
    for escape in ("start its name with my_", "list it in own_variables", "headfirst_NAME"):
        assert escape in str(error.hint)


def test_an_engine_and_a_bundle_of_another_program_are_in_the_same_error(tmp_path: Path) -> None:
    path = tmp_path / "a.ini"
    path.write_text(
        "[head]\nn1 ansible_host=192.0.2.1\n[all:vars]\ngpus=8\ngpu=H100-80G\nmodel=org/model\n"
        "engine=postgres\nbundle=base-2026-10\nrole=inference\n"
    )
    error = refusal(path)
    assert error.what.startswith("3 variables are wrong:\n")
    assert f"- {path}:7: Unknown engine 'postgres'. Known engines: " in error.what
    assert f"- {path}:8: bundle: no such file: {tmp_path}/base-2026-10. " in error.what
    assert f"- {path}:9: unknown variable role. " in error.what
    # By itself it is no mistake of who reads the status of a cluster: the file may be gone by then.
    assert load([path], ["engine=vllm", "own_variables=role"]).settings.bundle == ["base-2026-10"]


def test_what_is_typed_after_e_is_no_variable_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "a.ini"
    path.write_text("[head]\nn1 ansible_host=192.0.2.1\n[all:vars]\nmodel=org/model\n")
    for typed in ("parsers=yes", "engine_args=--context-length 9", "weights_environment=x"):
        assert "my_" not in str(refusal(path, typed).hint)


def test_several_models_beside_a_head_are_told_as_services(tmp_path: Path) -> None:
    path = tmp_path / "a.ini"
    path.write_text(
        "[head]\nn1 ansible_host=192.0.2.1\n[workers]\nn2 ansible_host=192.0.2.2\n"
        "n3 ansible_host=192.0.2.3\n[chat]\nn1\n[chat:vars]\nmodel=org/chat\n"
        "[embedding]\nn2\nn3\n[embedding:vars]\nmodel=org/embedding\n"
    )
    error = refusal(path)
    assert error.where == f"{path}:14"  # one line is wrong once
    assert str(error.hint).startswith("Several models are services: leave out [head] and [workers]")
