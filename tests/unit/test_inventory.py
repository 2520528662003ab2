"""Inventories as a new user writes them: what is read, and what each mistake says, with file and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from headfirst.common.errors import InputError
from headfirst.control.inventory.inventory import load
from together import together

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


def refusal(path: Path, *extra: str) -> InputError:
    with pytest.raises(InputError) as caught:
        load([path], extra)
    assert caught.value.exit_code == 2
    return caught.value


def test_ranks_are_the_head_then_the_workers_in_inventory_order(tmp_path: Path) -> None:
    cluster = load([write(tmp_path, GOOD)])
    assert [host.name for host in cluster.ranks] == ["node1", "node3", "node2"]
    assert [host.nic for host in cluster.ranks] == ["eth0", "eth0", "ens5"]
    assert cluster.name == "mine"
    assert cluster.webui == cluster.head
    assert cluster.head.login.user == "ubuntu"
    assert cluster.services[0].settings.engine_args == ["--mem-fraction-static", "0.8"]
    assert cluster.services[0].settings.engine_env == {"NCCL_DEBUG": "INFO", "NCCL_IB_TIMEOUT": "22"}


def test_options_of_ssh_are_part_of_the_login(tmp_path: Path) -> None:
    more = 'ansible_ssh_common_args="-o IdentitiesOnly=yes -o UserKnownHostsFile=/etc/hosts.known"\n'
    cluster = load([write(tmp_path, GOOD + more)])
    assert cluster.head.login.more_options[-1] == "UserKnownHostsFile=/etc/hosts.known"


def test_extra_variables_win(tmp_path: Path) -> None:
    cluster = load([write(tmp_path, GOOD)], ["engine_port=31000", "@" + str(_extra_file(tmp_path))])
    assert cluster.services[0].settings.engine_port == 31000
    assert cluster.settings.webui_port == 9090


def _extra_file(tmp_path: Path) -> Path:
    path = tmp_path / "extra.yml"
    path.write_text("webui_port: 9090\n")
    return path


def test_a_webui_host_of_its_own(tmp_path: Path) -> None:
    cluster = load([write(tmp_path, GOOD + "\n[webui]\nchat ansible_host=192.0.2.20\n")])
    assert cluster.webui.name == "chat"
    assert [host.name for host in cluster.hosts] == ["node1", "node3", "node2", "chat"]


def test_no_such_inventory(tmp_path: Path) -> None:
    error = refusal(tmp_path / "nowhere.ini")
    assert "no such inventory" in error.what
    assert "deploy init nowhere.ini" in str(error)


FIRST = "node1 ansible_host=192.0.2.11 gpus=8"


@together(
    ("old", "new", "what", "line"),
    [
        ("nic=ens5", "engine_port=30001", ".*engine_port is a setting of the whole cluster.*", None),
        ("node3 ansible_host=192.0.2.13", "node3", ".*node3 has no address.*", 5),
        ("nic=eth0", "engine_port=99999", ".*less than or equal to 65535.*", 11),
        ("nic=eth0", "tensor_parallel=zero", ".*valid integer.*", 11),
        (
            "NCCL_DEBUG=INFO NCCL_IB_TIMEOUT=22",
            "NCCL_DEBUG",
            ".*'NCCL_DEBUG' is not of the form NAME=VALUE.*",
            13,
        ),
        # Memory and capability that nobody can mean.
        (FIRST, f"{FIRST} gpu_memory=94", ".*less than 1m.*", 2),
        (FIRST, f"{FIRST} gpu_memory=94GB", ".*write 94g.*", 2),
        (FIRST, f"{FIRST} gpu_memory=much", ".*such as 32g.*", 2),
        (FIRST, f"{FIRST} gpu_capability=hopper", ".*pattern.*", 2),
        (FIRST, f"{FIRST} gpu_capability=90", ".*pattern.*", 2),
    ],
)
def test_a_mistake_has_its_line(tmp_path: Path, old: str, new: str, what: str, line: int | None) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new))
    error = refusal(path)
    assert re.fullmatch(what, f"{error.what} {error.hint}", re.DOTALL)
    assert line is None or error.where == f"{path}:{line}"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("engin_port", "engine_port"), ("docker_engine_data_rot", "docker_engine_data_root"), ("nick", "nic")],
)
def test_a_misspelled_variable(tmp_path: Path, wrong: str, right: str) -> None:
    path = write(tmp_path, GOOD + f"{wrong}=1\n")
    error = refusal(path)
    assert error.what == f"unknown variable {wrong}"
    assert str(error.hint).startswith(f"Did you mean {right}?")
    assert error.where == f"{path}:{len(path.read_text().splitlines())}"


def test_a_misspelled_variable_in_group_vars(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text("---\nengine_prot: 1\n")
    error = refusal(write(tmp_path, GOOD))
    assert error.where == f"{tmp_path}/group_vars/all.yml:2"


def test_passwords_in_urls_of_any_variable_are_known(tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text(
        "[head]\nnode1 ansible_host=192.0.2.11\n[all:vars]\nmodel_source=demo\n"
        "node_tools_index_url=https://user:index-token@host/simple\n"
        "nvidia_driver_run_file=http://me:{{ proxy_word }}@proxy:3128/driver.run\nproxy_word=proxy-secret\n"
    )
    assert load([path]).hidden == {"index-token", "proxy-secret"}


def test_memory_of_an_unlisted_gpu(tmp_path: Path) -> None:
    text = GOOD.replace(FIRST, f"{FIRST} gpu=H199 gpu_memory=94g gpu_capability=9.0")
    head = load([write(tmp_path, text)]).head
    assert (head.gpu, head.gpu_memory_bytes, head.gpu_capability) == ("H199", 94 << 30, (9, 0))
    head = load([write(tmp_path, text.replace("94g", "95830m").replace("gpu_capability=9.0", ""))]).head
    assert (head.gpu_memory_bytes, head.gpu_capability) == (95830 << 20, None)
    for written in ("94GiB", "94Gib", "96256MiB", '"94 g"'):
        assert load([write(tmp_path, text.replace("94g", written))]).head.gpu_memory_bytes == 94 << 30
