"""Inventories as a new user writes them: what is read, and what each mistake says, with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.common.errors import InputError
from headfirst.control.inventory.inventory import load

GOOD = """\
[head]
node1 ansible_host=192.0.2.11 gpus=8

[workers]
node3 ansible_host=192.0.2.13
node2 ansible_host=192.0.2.12 nic=ens5

[all:vars]
ansible_user=ubuntu
model=deepseek-ai/DeepSeek-R1
nic=eth0
engine_args="--mem-fraction-static 0.8"
engine_env=NCCL_DEBUG=INFO NCCL_IB_TIMEOUT=22
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.ini"
    path.write_text(text)
    return path


def test_ranks_are_the_head_then_the_workers_in_inventory_order(tmp_path: Path) -> None:
    cluster = load([write(tmp_path, GOOD)])
    assert [host.name for host in cluster.ranks] == ["node1", "node3", "node2"]
    assert [host.nic for host in cluster.ranks] == ["eth0", "eth0", "ens5"]
    assert cluster.name == "mine"
    assert cluster.webui == cluster.head
    assert cluster.head.login.user == "ubuntu"
    assert cluster.services[0].settings.engine_args == ["--mem-fraction-static", "0.8"]
    assert cluster.services[0].settings.engine_env == {"NCCL_DEBUG": "INFO", "NCCL_IB_TIMEOUT": "22"}


def test_extra_variables_win(tmp_path: Path) -> None:
    (tmp_path / "extra.yml").write_text("webui_port: 9090\n")
    cluster = load([write(tmp_path, GOOD)], ["engine_port=31000", f"@{tmp_path}/extra.yml"])
    assert (cluster.services[0].settings.engine_port, cluster.settings.webui_port) == (31000, 9090)


def test_no_such_inventory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such inventory") as caught:
        load([tmp_path / "nowhere.ini"])
    assert "deploy init nowhere.ini" in str(caught.value)


FIRST = "node1 ansible_host=192.0.2.11 gpus=8"


def test_passwords_in_urls_of_any_variable_are_known(tmp_path: Path) -> None:
    urls = (
        "node_tools_index_url=https://user:index-token@host/simple\n"
        "nvidia_driver_run_file=http://me:{{ proxy_word }}@proxy:3128/driver.run\nproxy_word=proxy-secret\n"
    )
    assert load([write(tmp_path, GOOD + urls)]).hidden == {"index-token", "proxy-secret"}


def test_memory_of_an_unlisted_gpu(tmp_path: Path) -> None:
    text = GOOD.replace(FIRST, f"{FIRST} gpu=H199 gpu_memory=94g gpu_capability=9.0")
    head = load([write(tmp_path, text)]).head
    assert (head.gpu, head.gpu_memory_bytes, head.gpu_capability) == ("H199", 94 << 30, (9, 0))
    head = load([write(tmp_path, text.replace("94g", "95830m").replace("gpu_capability=9.0", ""))]).head
    assert (head.gpu_memory_bytes, head.gpu_capability) == (95830 << 20, None)
    for written in ("94GiB", "94Gib", "96256MiB", '"94 g"'):
        assert load([write(tmp_path, text.replace("94g", written))]).head.gpu_memory_bytes == 94 << 30
