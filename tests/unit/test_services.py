"""Several services and replicas in one inventory: hosts, GPUs, names, ports, keys, and the runs of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clusters import catalogued, read
from headfirst.common.errors import InputError
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running import phases, playbooks
from headfirst.control.deployment.running.artifacts import Artifacts, builds
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.phases import of_down, of_up
from headfirst.control.deployment.running.role_vars.hosts import check_vars
from headfirst.control.run.result import RunResult, StageTime, joined
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.cluster.types import Cluster

pytestmark = pytest.mark.usefixtures("no_hub")

ENGINE = ServiceSettings().engine_port
PORT = ServiceSettings().router_port

HOSTS = "node1 ansible_host=192.0.2.1\nnode2 ansible_host=192.0.2.2\n"
ALL = "[all:vars]\ngpus=8\ngpu=H100-80G\nnic=eth0\nhca=none\nmodel_source=huggingface\n"
CHAT = "deepseek-ai/DeepSeek-R1-Distill-Llama-70B"
SMALL = "Qwen/Qwen3-0.6B"


def services(chat: str = "", small: str = "", hosts: str = "node2\n", end: str = "") -> str:
    return (
        f"[chat]\n{HOSTS}\n[chat:vars]\nmodel={CHAT}\n{chat}\n"
        f"[small]\n{hosts}\n[small:vars]\nmodel={SMALL}\n{small}\n{ALL}{end}"
    )


def short(settings: str, hosts: int = 4) -> str:
    workers = "".join(f"node{n} ansible_host=192.0.2.{n}\n" for n in range(2, hosts + 1))
    return f"[head]\nnode1 ansible_host=192.0.2.1\n[workers]\n{workers}\n{ALL}model={CHAT}\n{settings}\n"


def layout(made: Cluster) -> dict[str, list[list[tuple[str, tuple[str, ...] | None]]]]:
    """Hosts and GPUs of each replica of each service."""
    return {
        str(service): [
            [(place.host.name, place.devices) for place in replica.places] for replica in service.replicas
        ]
        for service in made.services
    }


def test_replicas_divide_the_hosts_in_their_order(tmp_path: Path) -> None:
    made = read(tmp_path, short("replicas=2"))
    assert layout(made) == {
        "DeepSeek-R1-Distill-Llama-70B": [
            [("node1", None), ("node2", None)],
            [("node3", None), ("node4", None)],
        ]
    }
    assert [replica.head.name for replica in made.services[0].replicas] == ["node1", "node3"]
    # Different heads: the ports may be the same.
    assert {replica.engine_port for replica in made.services[0].replicas} == {ENGINE}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("replicas=4", [tuple("01"), tuple("23"), tuple("45"), tuple("67")]),
        ("gpus_per_replica=4", [tuple("0123"), tuple("4567")]),
        ("gpus_per_replica=4\nreplicas=1", [tuple("0123")]),
        ("gpu_devices='4 5 6 7'\ngpus_per_replica=2", [tuple("45"), tuple("67")]),
        ("gpu_devices=3", [("3",)]),
        ("gpu_devices='GPU-1a GPU-2b'", [("GPU-1a", "GPU-2b")]),
        ("gpu_devices=4,5,6,7\ngpus_per_replica=2", [tuple("45"), tuple("67")]),
        ('gpu_devices="4, 5,6 7"', [tuple("4567")]),
        ("gpu_devices=MIG-1a,MIG-2b", [("MIG-1a", "MIG-2b")]),
    ],
)
def test_a_replica_may_have_a_part_of_a_host(tmp_path: Path, settings: str, expected: Any) -> None:
    made = read(tmp_path, short(settings, 1))
    assert [replica.places[0].devices for replica in made.services[0].replicas] == expected


def test_a_replica_may_span_hosts_by_its_number_of_gpus(tmp_path: Path) -> None:
    made = read(tmp_path, short("gpus_per_replica=16"))
    assert [[place.host.name for place in replica.places] for replica in made.services[0].replicas] == [
        ["node1", "node2"],
        ["node3", "node4"],
    ]


def test_cpus_of_each_host_serve_as_many_replicas(tmp_path: Path) -> None:
    text = short("engine_device=cpu\nreplicas=4", 2).replace("gpus=8\ngpu=H100-80G\n", "")
    hosts = [replica.head.name for replica in read(tmp_path, text).services[0].replicas]
    assert hosts == ["node1", "node1", "node2", "node2"]


def test_services_share_a_host_with_gpus_and_ports_of_their_own(tmp_path: Path) -> None:
    made = read(tmp_path, services("gpus_per_replica=4\nreplicas=3", "gpus_per_replica=1\nreplicas=2"))
    assert layout(made) == {
        "chat": [[("node1", tuple("0123"))], [("node1", tuple("4567"))], [("node2", tuple("0123"))]],
        "small": [[("node2", ("4",))], [("node2", ("5",))]],
    }
    nodes = [
        (node.container.name, node.host, node.container.gpus, replica.engine_port, replica.dist_port)
        for service in catalogued(made).services
        for replica in service.replicas
        for node in replica.nodes
    ]
    assert nodes == [
        ("headfirst-engine-chat", "node1", "device=0,1,2,3", ENGINE, 5000),
        ("headfirst-engine-chat-1", "node1", "device=4,5,6,7", ENGINE + 1, 5100),
        ("headfirst-engine-chat-2", "node2", "device=0,1,2,3", ENGINE, 5000),
        ("headfirst-engine-small", "node2", "device=4", ENGINE + 1, 5100),
        ("headfirst-engine-small-1", "node2", "device=5", ENGINE + 2, 5200),
    ]
    configs = [
        volume.partition(":")[0]
        for service in catalogued(made).services
        for replica in service.replicas
        for volume in replica.nodes[0].container.volumes
        if ".yaml:" in volume
    ]
    assert len(set(configs)) == 5
    assert configs[0] == "/etc/headfirst/engine-chat.yaml"


@pytest.mark.parametrize(
    ("chat", "small", "end", "what"),
    [
        (f"model={SMALL}", "model_revision=v2", "", f"{SMALL} of service chat and {SMALL} at v2"),
        ("adapters=a=org/x", "adapters=a=org/y", "", "org/x of service chat and org/y of service small"),
        ("draft_model=/a/EAGLE3", "draft_model=/b/EAGLE3", "", "/a/EAGLE3 of service chat and /b/EAGLE3 of"),
        (
            f"model={SMALL}",
            "model_revision=v2",
            "[spares]\nnode3 ansible_host=192.0.2.3\n",
            "node3 would keep",
        ),
    ],
)
def test_a_host_keeps_one_content_in_a_folder(
    tmp_path: Path, chat: str, small: str, end: str, what: str
) -> None:
    """Services with a host in common, or with a spare that may serve either."""
    chat = f"gpus_per_replica=4\nreplicas=3\n{chat}"
    hosts = "node4 ansible_host=192.0.2.4\n" if end else "node2\n"
    text = services(chat, f"gpus_per_replica=1\nreplicas=1\nserved_model_name=s\n{small}", hosts, end)
    with pytest.raises(InputError, match=what) as caught:
        catalogued(read(tmp_path, text))
    assert "weights_dir=/var/lib/headfirst/models/small" in str(caught.value.hint)
    catalogued(read(tmp_path, text.replace(small, f"{small}\nweights_dir=/data/small")))


def test_a_setting_of_one_group_is_not_another_ones(tmp_path: Path) -> None:
    made = read(tmp_path, services("gpus_per_replica=4\nreplicas=2", "engine_env='A=1'\nreplicas=1"))
    chat, small = made.services
    assert (chat.settings.engine_env, small.settings.engine_env) == ({}, {"A": "1"})
    assert small.settings.model == SMALL


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (short("replicas=3"), "4 hosts cannot be divided among 3 replicas"),
        (short("gpus_per_replica=3\nreplicas=9"), "9 replicas of 3 GPUs are more than the free GPUs"),
        (short("replicas=2\ngpu_devices='0 1 2 3'", 3), "node3 would serve nothing"),
        (short("replicas=1\ngpus_per_replica=8", 2), "node2 would serve nothing"),
        (short("gpus_per_replica=16", 3), "node3 would serve nothing"),
        (short("gpus_per_replica=12"), "a replica of 12 GPUs cannot be made of whole hosts"),
        (short("gpu_devices=8", 1), "node1 has no GPU 8"),
        (short('gpu_devices="1 1"', 1), "a GPU is listed twice"),
        (short("replicas=3", 1), "3 replicas cannot be spread evenly over 1 host with 8 GPUs"),
        (services("", "replicas=1"), "leave no GPU of node2 for small"),
        (short("gpu_devices='4;5'", 1), "'4;5' is no GPU"),
        (short("gpu_devices=-1", 1), "'-1' is no GPU"),
        (short("gpu_devices=0,,1", 1), "'' is no GPU"),
        (short("gpu_devices=GPU-1a,1", 1), "all by index, or all by UUID"),
        (short("gpu_devices=1,01", 1), "a GPU is listed twice"),
        (short("gpu_devices=GPU-1a,GPU-1a7f", 1), "a GPU is listed twice"),
        (services("gpu_devices='0 1'", "gpu_devices='1 2'"), "GPU 1 of node2 belongs to another service"),
        (services("gpu_devices=0,1,2,3", "gpu_devices='1 2'"), "GPU 1 of node2 belongs to another service"),
        (services("gpu_devices=GPU-1a", "gpu_devices=0"), "GPUs of node2 by UUID and by index"),
        (services("gpu_devices=GPU-1a", "gpu_devices=MIG-1a"), "GPUs of node2 by MIG and by UUID"),
        (services("gpu_devices=GPU-1a", ""), "GPUs of node2 by UUID and by index"),
        (services("gpus_per_replica=2\nreplicas=5", "gpu_devices=GPU-1a"), "by UUID and by index"),
        (services("gpu_devices=GPU-1a", "gpu_devices=GPU-1a7f"), "GPU GPU-1a7f of node2 belongs to another"),
        (
            services("gpu_devices=GPU-1,GPU-2,GPU-3,GPU-4,GPU-5", "gpu_devices=GPU-6,GPU-7,GPU-8,GPU-9"),
            "9 GPUs of node2 are listed: it has 8",
        ),
        (services("gpus_per_replica=4\nreplicas=3", "gpus_per_replica=16"), "1 replicas of 16 GPUs are more"),
        (services("gpus_per_replica=4\nreplicas=3", "gpus_per_replica=9"), "cannot be made of whole hosts"),
        (services().replace("[small", "[Small"), "Small cannot be the name of a service"),
        (
            services("gpus_per_replica=4\nreplicas=2", "served_model_name=DeepSeek-R1-Distill-Llama-70B"),
            "services chat and small are both served as",
        ),
        (
            services("gpus_per_replica=4", "", "node2 shm_size=1g\n"),
            "shm_size is a setting of a service, and a host of",
        ),
        (services("engine_port=30000", "").replace("gpus=8", "x_gpus=8"), "the number of GPUs of"),
    ],
)
def test_what_cannot_be_divided_is_refused(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        read(tmp_path, text)
    assert caught.value.where
    assert caught.value.hint


@pytest.mark.parametrize(
    ("hosts", "count", "hint"),
    [
        (1, 3, "Write replicas=1, 2, 4 or 8, or leave GPUs idle: write gpus_per_replica."),
        (1, 16, "Write replicas=1, 2, 4 or 8."),
        (2, 6, "Write replicas=2, 4, 8 or 16, or leave GPUs idle: write gpus_per_replica."),
    ],
)
def test_the_numbers_of_replicas_that_work_are_named(
    tmp_path: Path, hosts: int, count: int, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, short(f"replicas={count}", hosts))
    assert caught.value.hint == hint


def test_with_a_head_the_inventory_is_one_service(tmp_path: Path) -> None:
    text = short("").replace("[workers]", "[workers]\n") + "[all_gpus:children]\nhead\nworkers\n"
    made = read(tmp_path, text + f"[all_gpus:vars]\nmodel={CHAT}\n")
    assert [service.name for service in made.services] == [None]
    assert catalogued(made).services[0].replicas[0].nodes[0].container.name == "headfirst-engine"


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        (None, ["chat/0", "chat/1", "small/0"]),
        ("chat", ["chat/0", "chat/1"]),
        ("chat/1", ["chat/1"]),
        ("Qwen3-0.6B", ["small/0"]),
        ("/0", ["chat/0", "small/0"]),
    ],
)
def test_a_person_names_a_service_or_a_replica(tmp_path: Path, chosen: str | None, found: list[str]) -> None:
    made = read(tmp_path, services("gpus_per_replica=4\nreplicas=2", "gpus_per_replica=1\nreplicas=1"))
    assert [f"{service}/{replica.index}" for service, replica in made.chosen(chosen)] == found


@pytest.mark.parametrize("chosen", ["chat/7", "other", "chat/x"])
def test_another_name_is_refused_with_those_that_there_are(tmp_path: Path, chosen: str) -> None:
    made = read(tmp_path, services("gpus_per_replica=4\nreplicas=2", "gpus_per_replica=1\nreplicas=1"))
    with pytest.raises(InputError) as caught:
        made.chosen(chosen)
    assert "chat" in str(caught.value)


def test_each_service_has_a_key_of_its_own() -> None:
    secrets = Secrets().with_keys(["chat", "small", None])
    keys = [secrets.api_key(None), secrets.api_key("chat"), secrets.api_key("small")]
    # The first service is the one that had no name.
    assert keys[0] == keys[1] != keys[2]
    rotated = secrets.rotated()
    assert rotated.api_key(None) == rotated.api_key("chat") not in keys
    assert rotated.api_key("small") not in (*keys, rotated.api_key("chat"))
    assert set(keys) <= set(secrets.values())
    assert secrets.with_keys(["chat"]) is secrets
    assert secrets.rotated().api_key("chat") != secrets.api_key("chat")
    assert Secrets.model_validate_json(secrets.model_dump_json()) == secrets


def up(made: Cluster) -> list[phases.Phase]:
    secrets = Secrets().with_keys(service.name for service in made.services)
    files = Artifacts(Path("wheel"))
    return of_up(made, catalogued(made), secrets, files)


def test_an_image_that_services_name_differently_is_made_once(tmp_path: Path) -> None:
    hosts = "".join(f"[{name}]\nnode{name} ansible_host=192.0.2.{n}\n" for n, name in enumerate("abc", 1))
    build = "engine_device=cpu\nengine_image_source=build\nengine_image=lab/sglang:v"
    lines = [
        f"[{name}:vars]\nmodel={SMALL}\nserved_model_name={name}\n{build}-{image}\n"
        for name, image in zip("abc", "xyy", strict=True)
    ]
    made = read(tmp_path, f"{hosts}{''.join(lines)}{ALL}cpu_cores=0-15\n")
    (of_engines,) = builds(made, catalogued(made))
    assert of_engines.images == ["lab/sglang:v-x", "lab/sglang:v-y"]


def test_one_replica_is_one_run(tmp_path: Path) -> None:
    made = read(tmp_path, short(""))
    assert [phase.playbook for phase in up(made)] == ["up.yml"]
    assert [phase.playbook for phase in of_down(made)] == ["down.yml"]


def test_replicas_follow_one_another(tmp_path: Path) -> None:
    made = read(tmp_path, services("gpus_per_replica=8", "", "node3 ansible_host=192.0.2.3\n"))
    found = up(made)
    assert [phase.playbook for phase in found] == [
        "check.yml",
        "machine.yml",
        "image.yml",
        "weights.yml",
        "image.yml",
        "weights.yml",
        "router.yml",
        "serve.yml",
        "compile_cache.yml",
        "serve.yml",
        "serve.yml",
        "prune.yml",
        "deregister.yml",
        "webui.yml",
    ]
    first, brought, second, _ = served_by = found[7:11]
    assert list(brought.variables) == ["node1", "node2"]
    assert (list(first.variables), list(second.variables)) == (["node1"], ["node2"])
    assert first.variables["node1"]["engine_name"] == "headfirst-engine-chat"
    assert second.variables["node2"]["engine_name"] == "headfirst-engine-chat-1"
    assert second.variables["node2"]["engine_planned"] == ["headfirst-engine-chat-1"]
    ranks = [phase for phase in served_by if phase is not brought]
    served = [phase.variables[host] for phase in ranks for host in phase.variables]
    assert len({own["engine_api_key"] for own in served}) == 2
    # All replicas of a service have one version.
    assert [own["engine_version"] for own in served[:2]] == [served[0]["engine_version"]] * 2
    assert served[2]["engine_version"] not in ("", served[0]["engine_version"])
    assert found[11].variables == {
        "node1": {"engine_service_ranks": [{"name": "headfirst-engine-chat", "rank": 0}]},
        "node2": {"engine_service_ranks": [{"name": "headfirst-engine-chat-1", "rank": 0}]},
    }
    assert [phase.playbook for phase in of_down(made)] == [
        "stop_page.yml",
        "stop_router.yml",
        *["stop.yml"] * 3,
        "clean.yml",
    ]


def test_an_adapter_is_brought_like_weights(tmp_path: Path) -> None:
    made = read(tmp_path, short("adapters=sql=org/lora-sql", 1))
    found = up(made)
    weights = [phase.variables["node1"] for phase in found if phase.playbook == "weights.yml"]
    assert [own["weights_model"] for own in weights] == [CHAT, "org/lora-sql"]
    assert weights[1]["weights_name"] == "sql"
    container = catalogued(made).services[0].replicas[0].nodes[0].container
    folder = f"{weights[1]['weights_dir']}/sql"
    assert f"{folder}:{folder}:ro" in container.volumes


def test_tags_and_limit_leave_out_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = read(tmp_path, services("gpus_per_replica=4", "", "node3 ansible_host=192.0.2.3\n"))
    ran: list[tuple[str, frozenset[str] | None]] = []

    def run(playbook: str, _: RunOptions, limited: Cluster, *__: Any, **___: Any) -> RunResult:
        ran.append((playbook, limited.limit))
        return RunResult(True, False, {}, [], [], [], [], 0.0, Path("log"))

    monkeypatch.setattr(playbooks, "run_stages", run)
    options = RunOptions(made.inventories, tags=("host",))
    playbooks.run_phases(up(made), options, made.limited(["node2"]), None)  # type: ignore[arg-type]
    assert ran == [("machine.yml", {"node2"}), ("image.yml", {"node2"})]


@pytest.mark.parametrize(("limit", "tag"), [(["node2"], "webui"), (None, "proxy")])
def test_stages_that_act_on_no_host_are_refused(tmp_path: Path, limit: list[str] | None, tag: str) -> None:
    made = read(tmp_path, services("gpus_per_replica=4", "", "node3 ansible_host=192.0.2.3\n"))
    options = RunOptions(made.inventories, tags=(tag,))
    with pytest.raises(InputError, match="acts on a host"):
        playbooks.run_phases(up(made), options, made.limited(limit), None)  # type: ignore[arg-type]


def test_results_of_several_runs_are_one() -> None:
    def result(host: str, seconds: float) -> RunResult:
        return RunResult(
            True, False, {host: 1}, [], [], [], [StageTime("engine", seconds)], seconds, Path("l")
        )

    both = joined([result("a", 2.0), result("a", 3.0)])
    assert (both.changed_total, both.seconds, both.stages) == (2, 5.0, [StageTime("engine", 5.0)])


def test_the_chat_page_asks_the_router_of_a_service_with_replicas(tmp_path: Path) -> None:
    made = read(tmp_path, services("gpus_per_replica=8", "task=embedding", "node3 ansible_host=192.0.2.3\n"))
    found = up(made)[-1]
    own = next(iter(found.variables.values()))
    urls = own["open_webui_container"]["environment"]["OPENAI_API_BASE_URLS"].split(";")
    assert urls == [f"http://192.0.2.1:{PORT}/v1"]
    assert len(own["open_webui_engine_api_key"].split(";")) == 1


def test_the_check_compares_hosts_of_one_service(tmp_path: Path) -> None:
    own = services(small="gpus_per_replica=1\nreplicas=1", chat="gpus_per_replica=4\nreplicas=3")
    made = read(tmp_path, own)
    found = check_vars(made, catalogued(made))
    assert {host: set(variables["check_services"]) for host, variables in found.items()} == {
        "node1": {"chat"},
        "node2": {"chat", "small"},
    }
    short_form = read(tmp_path, short(""))
    assert all(
        variables["check_services"] == []
        for variables in check_vars(short_form, catalogued(short_form)).values()
    )


def test_a_cluster_that_only_embeds_has_no_chat_page(tmp_path: Path) -> None:
    made = read(tmp_path, short("task=embedding\nmodel=Qwen/Qwen3-0.6B", 1))
    assert catalogued(made).webui is None
