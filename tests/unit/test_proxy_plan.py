"""The proxy in the plan: when there is one, at which names, in front of what, and which ports it closes."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from headfirst.common.errors import InputError
from headfirst.control.credentials import local_ca
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.certificate import certificate_of, with_certificate
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.artifacts import Artifacts
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.ports import PROXY_METRICS_PORT
from headfirst.decide.cluster.settings import ClusterSettings, ServiceSettings
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.front.proxy import BUILT_IMAGE, OFFICIAL_IMAGE
from headfirst.decide.plan.types import Plan
from run_variables import up_variables

ENGINE = ServiceSettings().engine_port
ONE = "[head]\nn1 ansible_host=192.0.2.7 cpu_cores=0-3\n[all:vars]\nengine_device=cpu\nmodel_source=demo\n"
PAGE_PORT = ClusterSettings().webui_port
ELSEWHERE = ONE.replace("[all:vars]", "[webui]\nn9 ansible_host=192.0.2.9\n[all:vars]")
SEVERAL = """\
[chat]
n1 ansible_host=192.0.2.7 cpu_cores=0-3
n2 ansible_host=192.0.2.8 cpu_cores=0-3
[chat:vars]
model=headfirst-demo
replicas=2
[embedding]
n3 ansible_host=192.0.2.10 cpu_cores=0-3
[embedding:vars]
model=headfirst-demo-embedding
[all:vars]
engine_device=cpu
model_source=demo
"""


def made(folder: Path, text: str) -> tuple[Cluster, Plan]:
    path = folder / "mine.ini"
    path.write_text(text)
    found = prepare([path], [], probe=False)
    return found.cluster, found.plan


def variables(cluster: Cluster, plan: Plan, secrets: Secrets) -> dict[str, dict[str, object]]:
    return up_variables(cluster, plan, secrets, Artifacts(Path("wheel")))


def test_without_the_settings_nothing_is_there(tmp_path: Path) -> None:
    cluster, plan = made(tmp_path, ONE)
    assert plan.proxy is None
    assert "proxy" not in plan.model_dump_json()
    assert variables(cluster, plan, Secrets())["n1"]["headfirst_proxied_ports"] == []


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ("tls_names=LLM.example.org", "tls_names"),
        ("tls_names=*.example.org", "tls_names"),
        ("tls_names=-a", "tls_names"),
        ("tls_names=a/b", "tls_names"),
        ("tls_names=a..b", "tls_names"),
        (f"proxy_port={PAGE_PORT}", "proxy_port"),
    ],
)
def test_a_name_of_no_certificate_and_a_port_of_another_server_are_refused(
    tmp_path: Path, setting: str, what: str
) -> None:
    with pytest.raises(InputError, match=what):
        made(tmp_path, f"{ONE}tls=local-ca\n{setting}")


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ("tls=local-ca", "https://192.0.2.7"),
        ("tls=local-ca\nproxy_port=8443", "https://192.0.2.7:8443"),
        ("tls=local-ca\ntls_names='llm.example.org *.example.org'", "https://llm.example.org"),
        ("proxy=true", "http://192.0.2.7"),
        ("proxy=true\nproxy_addresses=203.0.113.5,192.0.2.7", "http://203.0.113.5"),
    ],
)
def test_where_people_reach_it(tmp_path: Path, settings: str, url: str) -> None:
    _, plan = made(tmp_path, ONE + settings)
    assert plan.proxy
    assert plan.proxy.url == url
    assert plan.webui
    # The page accepts requests of pages at that address.
    assert url in plan.webui.container.environment["CORS_ALLOW_ORIGIN"].split(";")


@pytest.mark.parametrize(
    ("settings", "image"),
    [
        ("proxy_image_source=registry", OFFICIAL_IMAGE),
        ("proxy_image_source=build", BUILT_IMAGE),
        ("proxy_image_source=build\nproxy_image=mirror.example/haproxy:3.2", "mirror.example/haproxy:3.2"),
    ],
)
def test_which_image_it_is(tmp_path: Path, settings: str, image: str) -> None:
    _, plan = made(tmp_path, f"{ONE}proxy=true\n{settings}")
    assert plan.proxy
    assert plan.proxy.container.image == image


def test_it_is_in_front_of_engine_and_page_and_closes_their_ports(tmp_path: Path) -> None:
    cluster, plan = made(tmp_path, ELSEWHERE + "tls=local-ca")
    assert plan.proxy
    assert plan.proxy.host == "n9"
    assert plan.proxy.page == f"192.0.2.9:{PAGE_PORT}"
    assert [(one.name, one.path, one.servers) for one in plan.proxy.services] == [
        ("api", "/v1", [f"192.0.2.7:{ENGINE}"])
    ]
    secrets = with_certificate(cluster, Secrets()).secrets
    found = variables(cluster, plan, secrets)
    assert found["n1"]["headfirst_proxied_ports"] == [f"{ENGINE}"]
    assert found["n9"]["headfirst_proxied_ports"] == [str(PROXY_METRICS_PORT), str(PAGE_PORT)]
    assert found["n9"]["host_tuning_peers"] == ["192.0.2.7"]
    assert found["n9"]["proxy_service_api_keys"] == {"api": secrets.engine_api_key}


def test_several_services_have_paths_and_their_routers(tmp_path: Path) -> None:
    _, plan = made(tmp_path, SEVERAL + "proxy=true")
    assert plan.proxy
    assert [(one.path, one.servers) for one in plan.proxy.services] == [
        ("/services/chat/v1", [url.removeprefix("http://") for url in plan.services[0].urls]),
        ("/services/embedding/v1", [f"192.0.2.10:{ENGINE}"]),
    ]
    router = plan.services[0].routers[0]
    # The router's, too: who reaches it needs no key of the proxy.
    assert router.port in plan.proxy.closed_ports[router.host]
    assert set(plan.proxy.closed_ports) == {"n1", "n2", "n3"}


REWARD = """\
[reward]
n1 ansible_host=192.0.2.7 cpu_cores=0-3
n2 ansible_host=192.0.2.8 cpu_cores=0-3
[reward:vars]
model=headfirst-demo
task=reward
replicas=2
engine=vllm
[all:vars]
engine_device=cpu
model_source=demo
"""


def test_requests_of_a_reward_model_outside_v1_go_to_the_replicas(tmp_path: Path) -> None:
    _, plan = made(tmp_path, REWARD + "proxy=true")
    assert plan.proxy
    [service] = plan.proxy.services
    assert service.servers == [
        f"192.0.2.7:{ServiceSettings().router_port}"
    ]  # the router's, which has no such paths
    assert service.paths == plan.services[0].paths_outside_v1 == ["/classify", "/pooling"]
    assert service.engines == [f"192.0.2.7:{ENGINE}", f"192.0.2.8:{ENGINE}"]


def test_a_router_without_a_proxy_is_noted_where_a_task_has_paths_outside_v1(tmp_path: Path) -> None:
    _, plan = made(tmp_path, REWARD)
    assert ["requests for /classify and /pooling to" in note for note in plan.services[0].notes] == [
        False,
        True,
    ]
    _, plan = made(tmp_path, REWARD.replace("replicas=2", "replicas=1"))
    (note,) = plan.services[0].notes
    assert "the snapshot of vLLM" in note
    _, plan = made(tmp_path, REWARD.replace("task=reward", "task=embedding") + "proxy=true")
    assert plan.proxy
    assert "paths" not in plan.proxy.services[0].model_dump()


def test_the_certificate_is_kept_with_the_secrets(tmp_path: Path) -> None:
    cluster, _ = made(tmp_path, ONE + "tls=local-ca")
    first = with_certificate(cluster, Secrets()).secrets
    assert first.local_ca
    assert with_certificate(cluster, first).secrets is first
    presented = certificate_of(cluster, first)
    assert presented.certificate == first.local_ca.certificate
    assert first.local_ca.key in first.values()
    # Another controller reads them from the head.
    assert Secrets.model_validate_json(first.model_dump_json()) == first
    assert first.rotated().local_ca == first.local_ca


def write_files(folder: Path, names: list[str], days: int = 30) -> tuple[Path, Path]:
    now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=local_ca.CERTIFICATE_DAYS - days)
    own = local_ca.new_authority("x", names, now).shared
    (folder / "chain.pem").write_text(own.certificate + own.ca_certificate)
    (folder / "key.pem").write_text(own.key)
    return folder / "chain.pem", folder / "key.pem"


def with_files(folder: Path, more: str = "") -> Cluster:
    text = f"{ONE}tls=files\ntls_certificate={folder / 'chain.pem'}\ntls_key={folder / 'key.pem'}\n{more}\n"
    (folder / "mine.ini").write_text(text)
    return load([folder / "mine.ini"])


def test_files_of_the_controller_are_presented_with_their_chain(tmp_path: Path) -> None:
    chain, key = write_files(tmp_path, ["llm.example.org"])
    presented = certificate_of(with_files(tmp_path, "tls_names=llm.example.org"), Secrets())
    assert (presented.certificate, presented.key) == (chain.read_text(), key.read_text())
    assert presented.ends == int(local_ca.not_after(chain.read_text()).timestamp())
    assert "PRIVATE" not in repr(presented)


def refusal(folder: Path, match: str | None = None, more: str = "") -> InputError:
    with pytest.raises(InputError, match=match) as error:
        certificate_of(with_files(folder, more), Secrets())
    return error.value


def test_a_certificate_that_clients_would_not_accept_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, ["*.example.org"])  # a pattern covers one part of a name
    assert certificate_of(with_files(tmp_path, "tls_names=llm.example.org"), Secrets()).ends
    refusal(tmp_path, r"not for a\.b\.example\.org", "tls_names=a.b.example.org")
    write_files(tmp_path, ["llm.example.org"])
    error = refusal(tmp_path, r"not for 192\.0\.2\.7, but for llm\.example\.org")
    assert "tls_names=llm.example.org" in str(error.hint)
    write_files(tmp_path, ["192.0.2.7"], days=-1)
    refusal(tmp_path, "ended on")


def test_a_key_of_another_certificate_or_with_a_password_is_refused(tmp_path: Path) -> None:
    _, path = write_files(tmp_path, ["192.0.2.7"])
    key = load_pem_private_key(path.read_bytes(), None)
    path.write_text(local_ca.new_authority("x", ["192.0.2.7"]).shared.key)
    refusal(tmp_path, "the key is not that of")
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    refusal(tmp_path, "without a password")
    (tmp_path / "mine.ini").write_text(ONE + "tls=files\n")
    with pytest.raises(InputError, match="needs tls_certificate"):
        certificate_of(load([tmp_path / "mine.ini"]), Secrets())


@pytest.mark.parametrize("file", ["chain.pem", "key.pem"])
def test_files_that_are_no_pem_or_missing_are_named(tmp_path: Path, file: str) -> None:
    write_files(tmp_path, ["192.0.2.7"])
    (tmp_path / file).write_text("no PEM")
    assert str(tmp_path / file) in str(refusal(tmp_path).where)
    (tmp_path / file).unlink()
    refusal(tmp_path, "No such file")
