"""Which services have routers, where, at which ports, and what the plan and the roles get of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from clusters import catalogued, read
from headfirst.common.errors import InputError
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.artifacts import Artifacts
from headfirst.control.deployment.running.phases import of_down, of_up
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.containers.blanks import filled

PORT, METRICS_PORT = ServiceSettings().router_port, ServiceSettings().router_metrics_port

ENGINE = ServiceSettings().engine_port
ROLE = Path(__file__).resolve().parents[2] / "roles" / "router"
MODEL = "Qwen/Qwen3-32B"
ALL = f"\n[all:vars]\nmodel={MODEL}\ngpus=8\ngpu=H100-80G\nnic=eth0\nhca=none\n"
ONE = "[head]\nnode1 ansible_host=192.0.2.1\n"
TWO = f"{ONE}[workers]\nnode2 ansible_host=192.0.2.2\n"
SERVICES = f"""\
[chat]
node1 ansible_host=192.0.2.1
node2 ansible_host=192.0.2.2
[chat:vars]
model={MODEL}
gpus_per_replica=4
replicas=2
[small]
node2
[small:vars]
model=Qwen/Qwen3-30B-A3B
gpus_per_replica=4
replicas=1
"""
ROUTERS = "[router]\nedge1 ansible_host=192.0.2.8\nedge2 ansible_host=192.0.2.9\n"


def ends(made: Cluster) -> list[list[str]]:
    return [list(service.urls) for service in made.services]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ONE + ALL, [[f"http://192.0.2.1:{ENGINE}"]]),
        (TWO + ALL + "replicas=2", [[f"http://192.0.2.1:{PORT}"]]),
        (ONE + ROUTERS + ALL, [[f"http://192.0.2.8:{PORT}", f"http://192.0.2.9:{PORT}"]]),
        (SERVICES + ALL, [[f"http://192.0.2.1:{PORT}"], [f"http://192.0.2.2:{ENGINE}"]]),
        (
            SERVICES + ROUTERS + ALL,
            [
                [f"http://192.0.2.8:{PORT}", f"http://192.0.2.9:{PORT}"],
                [f"http://192.0.2.8:{PORT + 1}", f"http://192.0.2.9:{PORT + 1}"],
            ],
        ),
    ],
)
def test_where_clients_find_a_service(tmp_path: Path, text: str, expected: list[list[str]]) -> None:
    made = read(tmp_path, text)
    assert ends(made) == expected
    assert [service.urls for service in catalogued(made).services] == expected


def test_hosts_of_routers_need_no_ranks(tmp_path: Path) -> None:
    made = read(tmp_path, TWO + ROUTERS + ALL)
    assert [host.name for host in made.hosts] == ["node1", "node2", "edge1", "edge2"]
    assert [host.name for host in made.ranks] == ["node1", "node2"]


def test_a_plan_without_routers_does_not_mention_them(tmp_path: Path) -> None:
    assert "router" not in catalogued(read(tmp_path, ONE + ALL)).model_dump_json()


@pytest.mark.parametrize("port", [f"router_port={ENGINE}", "router_metrics_port=5000"])
def test_a_port_that_another_has_is_refused(tmp_path: Path, port: str) -> None:
    with pytest.raises(InputError, match="have the same port"):
        read(tmp_path, f"{TWO}{ALL}replicas=2\n{port}\n")


def test_the_plan_shows_the_whole_command_and_no_key(tmp_path: Path) -> None:
    made = read(tmp_path, TWO + ALL + "replicas=2\nrouter_policy=round_robin\n")
    (router,) = catalogued(made).services[0].routers
    assert (router.host, router.policy, router.container.name) == ("node1", "round_robin", "headfirst-router")
    words = router.container.command
    assert words[words.index("--policy") + 1] == "round_robin"
    assert words[words.index("--host") + 1] == words[words.index("--prometheus-host") + 1] == "192.0.2.1"
    assert router.container.image == "lightseekorg/smg:1.13.0"
    assert "api-key" not in " ".join(router.docker_run)


def test_the_role_creates_what_the_plan_shows(tmp_path: Path) -> None:
    made = read(tmp_path, SERVICES + ALL)
    container = catalogued(made).services[0].routers[0].container
    own = DataLoader().load_from_file(str(ROLE / "vars" / "main.yml"), trusted_as_template=True)
    given = {"router_container": container.module_spec(), "router_name": container.name}
    found: dict[str, Any] = Templar(DataLoader(), variables={**own, **given}).template(
        trust_as_template("{{ __router_spec }}")
    )
    assert found == container.module_spec()


def test_the_role_writes_the_keys_that_the_plan_shows(tmp_path: Path) -> None:
    found = catalogued(read(tmp_path, ONE + ROUTERS + ALL)).services[0].routers[0].env_file
    keys = {"secret:api-key": "sk-service", "secret:router-key": "sk-routers"}
    own = DataLoader().load_from_file(str(ROLE / "vars" / "main.yml"), trusted_as_template=True)
    given = {"router_api_key": "sk-service", "router_admin_key": "sk-routers"}
    written = Templar(DataLoader(), variables={**own, **given}).template(
        trust_as_template("{{ __router_secrets }}")
    )
    assert written == {name: filled(text, keys) for name, text in found.items()}


def test_every_router_knows_its_service_and_every_replica_its_routers(tmp_path: Path) -> None:
    made = read(tmp_path, SERVICES + ROUTERS + ALL)
    secrets = Secrets().with_keys(["chat", "small"])
    found = of_up(made, catalogued(made), secrets, Artifacts(Path("wheel")))
    routers = [phase for phase in found if phase.playbook == "router.yml"]
    assert [list(phase.variables) for phase in routers] == [["edge1", "edge2"]] * 2
    own = routers[1].variables["edge2"]
    assert own["router_name"] == "headfirst-router-small"
    assert own["router_url"] == f"http://192.0.2.9:{PORT + 1}"
    assert own["router_planned"] == ["headfirst-router-chat", "headfirst-router-small"]
    assert own["router_api_key"] == secrets.api_key("small")
    assert own["router_admin_key"] in secrets.values()
    served = [phase for phase in found if phase.playbook == "serve.yml"]
    rank = next(iter(served[0].variables.values()))
    assert rank["engine_supervision"]["routers"] == [
        {"url": f"http://192.0.2.8:{PORT}", "key": secrets.router_key},
        {"url": f"http://192.0.2.9:{PORT}", "key": secrets.router_key},
    ]
    names = [phase.playbook for phase in found]
    assert names.index("router.yml") < names.index("serve.yml")
    assert [phase.playbook for phase in of_down(made)].count("stop_router.yml") == 2


def test_only_the_clusters_hosts_reach_the_routers_metrics(tmp_path: Path) -> None:
    made = read(tmp_path, TWO + ROUTERS + ALL)
    secrets = Secrets()
    (everything,) = of_up(made, catalogued(made), secrets, Artifacts(Path("wheel")))
    own = everything.variables["edge1"]
    assert own["host_tuning_rendezvous_ports"] == [str(METRICS_PORT)]
    assert own["check_ports"] == [PORT, METRICS_PORT]
    assert everything.variables["node2"]["host_tuning_rendezvous_ports"] == []
