"""`deploy plan --svg`: every rank, port and link of the plan is drawn, and names cannot break it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest
from clusters import catalogued, read
from headfirst.control.cli.app import app
from headfirst.control.report.drawing import WIDTH, _width, svg
from headfirst.control.report.topology import (
    MOST_RANKS,
    PAGE,
    PEOPLE,
    PROXY,
    RANKS_OF_MANY,
    topology,
)
from headfirst.decide.cluster.settings import ClusterSettings, ServiceSettings
from headfirst.decide.plan.types import Plan
from typer.testing import CliRunner

PORT, METRICS_PORT = ServiceSettings().router_port, ServiceSettings().router_metrics_port

ENGINE = ServiceSettings().engine_port
ROOT = Path(__file__).resolve().parents[2]
NS = {"s": "http://www.w3.org/2000/svg"}
GPUS = "gpus=8\ngpu=H100-80G\nnic=eth0\nhca=none\nmodel_source=modelscope\n"
EVERYTHING = f"""
[chat]
node01 ansible_host=192.0.2.4
node02 ansible_host=192.0.2.5
[chat:vars]
model=Qwen/Qwen3-32B
gpus_per_replica=4
replicas=3
[embedding]
node02
[embedding:vars]
model=Qwen/Qwen3-Embedding-8B
task=embedding
gpus_per_replica=1
replicas=1
[monitoring]
node02
[all:vars]
{GPUS}tls=local-ca
"""


def made(folder: Path, text: str) -> Plan:
    return catalogued(read(folder, text))


def short(hosts: int, settings: str = "") -> str:
    workers = "".join(f"node{n} ansible_host=192.0.{n // 200}.{n % 200 + 1}\n" for n in range(2, hosts + 1))
    return (
        f"[head]\nnode1 ansible_host=192.0.2.250\n[workers]\n{workers}[all:vars]\n{GPUS}"
        f"model=deepseek-ai/DeepSeek-R1\n{settings}\n"
    )


def texts(root: xml.Element) -> list[str]:
    return [element.text or "" for element in root.iterfind(".//s:text", NS)]


def drawn(root: xml.Element) -> dict[str, list[str]]:
    """The texts of each box."""
    return {
        group.attrib["data-box"]: [text.text or "" for text in group.iterfind("s:text", NS)]
        for group in root.iterfind(".//s:g[@data-box]", NS)
    }


def links(root: xml.Element) -> set[tuple[str, str, str]]:
    return {
        (line.attrib["data-from"], line.attrib["data-to"], line.attrib["data-ports"])
        for line in root.iterfind(".//s:polyline[@data-from]", NS)
    }


def assert_inside(root: xml.Element) -> None:
    """Nothing is outside the picture, and the picture is not larger than its content needs."""
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    rects = [one for one in root.iterfind(".//s:rect", NS) if one.get("class") != "paper"]
    right = max(float(one.attrib["x"]) + float(one.attrib["width"]) for one in rects)
    assert right <= width
    assert all(float(one.attrib["y"]) < height for one in root.iterfind(".//s:text", NS))
    assert max(float(one.attrib["y"]) for one in root.iterfind(".//s:text", NS)) > height - 60


Point = tuple[float, float]


def points(line: xml.Element) -> list[Point]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in line.attrib["points"].split())]


def assert_no_line_crosses_a_text(root: xml.Element) -> None:
    """No segment of a connection touches the rectangle of a text, as wide as the drawing takes it to be."""
    rectangles = []
    for text in root.iterfind(".//s:text", NS):
        x, y, letters = float(text.attrib["x"]), float(text.attrib["y"]), text.text or ""
        larger = 1.4 if text.get("class") == "big" else 1
        rectangles.append((x, y - 11 * larger, x + _width(letters) * larger, y + 3, letters))
    assert rectangles
    for line in root.iterfind(".//s:polyline", NS):
        for (x1, y1), (x2, y2) in itertools.pairwise(points(line)):
            assert x1 == x2 or y1 == y2
            for left, top, right, bottom, letters in rectangles:
                apart = max(x1, x2) < left or min(x1, x2) > right or max(y1, y2) < top or min(y1, y2) > bottom
                assert apart, f"{line.attrib['data-from']} → {line.attrib['data-to']} crosses {letters!r}"


def test_a_line_that_crosses_a_text_is_found() -> None:
    crossed = (
        f'<svg xmlns="{NS["s"]}"><text x="10" y="20">text</text>'
        '<polyline data-from="a" data-to="b" points="0,18 50,18"/></svg>'
    )
    with pytest.raises(AssertionError, match="a → b crosses 'text'"):
        assert_no_line_crosses_a_text(xml.fromstring(crossed))


@pytest.mark.parametrize("inventory", sorted(path.name for path in (ROOT / "inventories").glob("*.ini")))
def test_no_line_of_the_examples_crosses_a_text(inventory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    result = CliRunner().invoke(app, ["plan", str(ROOT / "inventories" / inventory), "--svg"])
    root = xml.fromstring(result.stdout)
    assert_inside(root)
    assert_no_line_crosses_a_text(root)


@pytest.mark.parametrize("hosts", [1, 3, 16, 40])
@pytest.mark.parametrize("settings", ["", "replicas=1\n", "proxy=true\n"])
def test_no_line_of_a_large_plan_crosses_a_text(hosts: int, settings: str, tmp_path: Path) -> None:
    text = short(hosts, settings + (f"replicas={hosts}" if not settings.startswith("replicas") else ""))
    text = text.replace("[all:vars]", "[monitoring]\nnode1\n[all:vars]").replace(
        "deepseek-ai/DeepSeek-R1", "Qwen/Qwen3-32B"
    )
    assert_no_line_crosses_a_text(xml.fromstring(svg(made(tmp_path, text))))


@pytest.mark.parametrize("inventory", ["h200x1.ini", "a100x4.ini", "lab.ini", "h100x2-services.ini"])
def test_every_rank_port_gpu_and_link_of_the_examples(inventory: str) -> None:
    result = CliRunner().invoke(app, ["plan", str(ROOT / "inventories" / inventory), "--json"])
    plan = Plan.model_validate_json(result.stdout)
    root = xml.fromstring(svg(plan))
    boxes, found = drawn(root), links(root)
    assert_inside(root)
    gpus = 0
    for service in plan.services:
        name = service.name or service.served_model_name
        for replica in service.replicas:
            head = f"rank:{name}/{replica.index}:0"
            for node in replica.nodes:
                id = f"rank:{name}/{replica.index}:{node.rank}"
                lines = boxes[id]
                assert lines[:3] == [node.host, f"rank {node.rank}", node.address]
                if service.device == "cuda":
                    gpus += len(node.gpu_devices or range(service.world_size // len(replica.nodes)))
                if node.rank:
                    assert (id, head, " ".join(map(str, replica.rendezvous_ports))) in found
            assert f"API {replica.engine_port}" in boxes[head]
            for router in service.routers:
                assert (f"router:{name}:{router.host}", head, str(replica.engine_port)) in found
            if not service.routers:
                assert (PEOPLE, head, str(replica.engine_port)) in found
            rendezvous = f"rendezvous {', '.join(map(str, replica.rendezvous_ports))}"
            assert (rendezvous in boxes[head]) == (len(replica.nodes) > 1)
        for router in service.routers:
            assert f"{router.address}:{router.port}" in boxes[f"router:{name}:{router.host}"]
            assert (PAGE, f"router:{name}:{router.host}", str(router.port)) in found or name == "embedding"
    assert len(root.findall(".//s:rect[@class='gpu']", NS)) == gpus
    assert plan.webui
    assert (PEOPLE, PAGE, str(plan.webui.port)) in found
    # Each link is a sentence too, with its port.
    words = " ".join(texts(root))
    for _, _, ports in found:
        assert f"port {ports.replace(' ', ', ')}:" in words


def test_a_network_is_written_beside_its_ranks() -> None:
    result = CliRunner().invoke(app, ["plan", str(ROOT / "inventories" / "a100x4.ini"), "--svg"])
    assert "collectives: RDMA mlx5_1,mlx5_2,mlx5_3,mlx5_4 GID 3, interface eth0" in result.stdout


def test_proxy_page_routers_and_monitoring(tmp_path: Path) -> None:
    plan = made(tmp_path, EVERYTHING)
    root = xml.fromstring(svg(plan))
    assert_no_line_crosses_a_text(root)
    found, boxes = links(root), drawn(root)
    router = "router:chat:node01"
    assert {
        (PEOPLE, PROXY, "443"),
        (PROXY, PAGE, str(ClusterSettings().webui_port)),
        (PROXY, router, str(PORT)),
        (PROXY, "rank:embedding/0:0", f"{ENGINE + 1}"),
        (PAGE, router, str(PORT)),
        (router, "rank:chat/0:0", f"{ENGINE}"),
        (router, "rank:chat/1:0", f"{ENGINE + 1}"),
        (router, "rank:chat/2:0", f"{ENGINE}"),
        ("monitoring:grafana", "monitoring:prometheus", "9090"),
        ("monitoring:prometheus", "monitoring:node-exporter", "9100"),
        ("monitoring:prometheus", "monitoring:dcgm-exporter", "9400"),
        ("monitoring:prometheus", router, str(METRICS_PORT)),
        ("monitoring:prometheus", PROXY, "9101"),
        (PEOPLE, "monitoring:grafana", "3000"),
    } <= found
    # People come through the proxy only.
    assert {target for source, target, _ in found if source == PEOPLE} == {PROXY, "monitoring:grafana"}
    assert "TLS" in boxes[PROXY]
    assert boxes["monitoring:node-exporter"] == ["node-exporter on 2 hosts", "node01, node02", "port 9100"]


def test_a_spare_is_a_box_without_links(tmp_path: Path) -> None:
    text = short(2).replace("[all:vars]", "[spares]\nextra ansible_host=192.0.2.77\n[all:vars]")
    root = xml.fromstring(svg(made(tmp_path, text)))
    assert drawn(root)["spare:extra"] == ["extra", "spare"]
    assert not [link for link in links(root) if "spare:extra" in link]


@pytest.mark.parametrize(("settings", "boxes"), [("replicas=50", 10), ("pipeline_parallel=100", 10)])
def test_a_hundred_hosts_are_grouped_and_that_is_stated(tmp_path: Path, settings: str, boxes: int) -> None:
    if settings.startswith("pipeline"):
        plan = made(tmp_path, short(2))
        (service,) = plan.services
        (replica,) = service.replicas
        nodes = [
            replica.nodes[min(n, 1)].model_copy(update={"rank": n, "host": f"node{n}"}) for n in range(100)
        ]
        many = service.model_copy(
            update={"replicas": [replica.model_copy(update={"nodes": nodes})], "world_size": 800}
        )
        plan = plan.model_copy(update={"services": [many]})
        grouped, stated = "ranks:DeepSeek-R1/0", f"{100 - RANKS_OF_MANY} of 100 ranks share one box"
    else:
        plan = made(tmp_path, short(100, settings))
        grouped, stated = "replicas:DeepSeek-R1", "46 of 50 replicas share one box"
    root = xml.fromstring(svg(plan))
    assert_inside(root)
    assert float(root.attrib["viewBox"].split()[2]) < WIDTH * 1.2
    assert len([id for id in drawn(root) if id.startswith("rank")]) <= boxes
    assert any(stated in text for text in texts(root))
    assert {one for one, _, _ in links(root)} | {one for _, one, _ in links(root)} >= {grouped}
    # No port is lost with the boxes.
    found = {port for _, _, ports in links(root) for port in ports.split()}
    own = [replica for service in plan.services for replica in service.replicas]
    assert {str(replica.engine_port) for replica in own} <= found


def divided(hosts: int, settings: str) -> str:
    workers = "".join(f"node{n} ansible_host=192.0.2.{n}\n" for n in range(2, hosts + 1))
    return (
        f"[head]\nnode1 ansible_host=192.0.2.1\n[workers]\n{workers}[all:vars]\ngpus=8\ngpu=H100-80G\n"
        f"model=Qwen/Qwen3-32B\nmodel_source=modelscope\n{settings}\n"
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("hca=none", "KV cache: Mooncake over TCP, 262 MB for 1,000 tokens"),
        ("hca=mlx5_0\nkv_transfer=nixl", "KV cache: NIXL over RDMA, 262 MB for 1,000 tokens"),
        ("engine=vllm", "KV cache: NIXL over RDMA or TCP (not known), 262 MB for 1,000 tokens"),
    ],
)
def test_the_kv_cache_has_an_arrow_from_prefill_to_decode(tmp_path: Path, settings: str, words: str) -> None:
    counts = "prefill_replicas=1\ndecode_replicas=2\n"
    root = xml.fromstring(svg(made(tmp_path, divided(3, counts + settings))))
    assert_inside(root)
    assert_no_line_crosses_a_text(root)
    shown = texts(root)
    assert words in shown
    assert {"prefill replica 0", "decode replica 1", "decode replica 2"} <= set(shown)
    prefill, *decode = (f"rank:Qwen3-32B/{index}:0" for index in range(3))
    assert {(prefill, each, "") for each in decode} | {(each, prefill, "7100") for each in decode} <= links(
        root
    )
    arrows = root.findall(".//s:polygon[@class='kv']", NS)
    lines = [points(line) for line in root.findall(".//s:polyline[@class='kv']", NS)]
    assert len(arrows) == len(lines) == 2
    # Each leads down, from the prefill replica to a decode replica below it.
    assert all(line[0][1] < line[-1][1] for line in lines)
    assert any(words in text and " → " in text and "port" not in text for text in shown)


def test_on_one_host_the_kv_cache_does_not_leave_it(tmp_path: Path) -> None:
    plan = made(tmp_path, divided(1, "prefill_replicas=1\ndecode_replicas=1"))
    assert "KV cache: Mooncake inside the host, 262 MB for 1,000 tokens" in texts(xml.fromstring(svg(plan)))


def test_many_replicas_are_grouped_by_what_they_compute(tmp_path: Path) -> None:
    plan = made(tmp_path, divided(20, "prefill_replicas=5\ndecode_replicas=15\nhca=none"))
    root = xml.fromstring(svg(plan))
    assert_inside(root)
    assert_no_line_crosses_a_text(root)
    boxes = drawn(root)
    assert boxes["replicas:Qwen3-32B:prefill"][0] == "3 more replicas"
    assert boxes["replicas:Qwen3-32B:decode"][0] == "13 more replicas"
    assert len([id for id in boxes if id.startswith("rank:")]) == 4
    assert any("16 of 20 replicas share boxes" in text for text in texts(root))
    assert ("replicas:Qwen3-32B:prefill", "replicas:Qwen3-32B:decode", "") in links(root)


def test_as_many_ranks_as_fit_are_all_drawn(tmp_path: Path) -> None:
    found = topology(made(tmp_path, short(8)))
    assert found.notes == []
    assert len([box for box in found.boxes if box.kind == "rank"]) == 8 <= MOST_RANKS


def test_names_are_text_only(tmp_path: Path) -> None:
    hostile = '</text><script>alert("1")</script>&\x1b[31m\ud800\ufffe\x00' + "好" * 300
    plan = made(tmp_path, EVERYTHING)
    service = plan.services[0].model_copy(update={"served_model_name": hostile, "name": hostile})
    plan = plan.model_copy(update={"cluster": hostile, "services": [service, *plan.services[1:]]})
    text = svg(plan)
    root = xml.fromstring(text.encode())
    assert not root.findall(".//s:script", NS)
    assert '</text><script>alert("1")</script>&' in "".join(texts(root))
    assert "\x1b" not in text
    assert max(map(len, texts(root))) <= 160


def test_nothing_from_outside_and_no_choice_of_the_moment(tmp_path: Path) -> None:
    plan = made(tmp_path, EVERYTHING)
    text = svg(plan)
    assert text == svg(Plan.model_validate_json(plan.model_dump_json()))
    assert not re.findall(r"href|url\(|@import|@font-face|<image|<foreignObject| style=", text)
    assert set(re.findall(r"https?://[^\s<\"]+", text)) == {"http://www.w3.org/2000/svg", "https://192.0.2.4"}
    assert "prefers-color-scheme: dark" in text


def test_the_option_writes_a_file(tmp_path: Path) -> None:
    target = tmp_path / "plan.svg"
    words = ["plan", str(ROOT / "inventories" / "a100x4.ini")]
    assert CliRunner().invoke(app, [*words, "--svg", "-o", str(target)]).exit_code == 0
    shown = CliRunner().invoke(app, [*words, "--svg"])
    assert target.read_text() == shown.stdout
    for wrong in (["-o", str(target)], ["--svg", "--json"], ["--svg", "-o", str(tmp_path / "no" / "file")]):
        refused = CliRunner().invoke(app, [*words, *wrong])
        assert getattr(refused.exception, "exit_code", None) == 2
