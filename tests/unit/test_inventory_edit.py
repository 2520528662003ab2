"""`deploy replace` and `deploy remove` change the lines of two hosts, and nothing else of the inventory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from headfirst.common.errors import InputError
from headfirst.common.state_files import rewrite_file
from headfirst.control.deployment.hosts import running
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.verbs.membership import removal, replacement
from headfirst.control.inventory.edit import with_spare, without
from headfirst.control.inventory.inventory import load

INVENTORY = """\
# Rented until March.
[head]
node1 ansible_host=192.0.2.11

[workers]
node2 ansible_host=192.0.2.12  # the upper rack
node3 ansible_host=192.0.2.13 nic=ens5

[spares]
node4 ansible_host=192.0.2.14 nic=ens6

[all:vars]
gpus=8
gpu=A100-80G
nic=eth0
hca=none
model=deepseek-ai/DeepSeek-R1-Distill-Qwen-32B
tensor_parallel=8
pipeline_parallel=3
"""


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(running, "specifications", lambda *_: {})  # no containers on the hosts
    path = tmp_path / "cluster.ini"
    path.write_text(INVENTORY)
    return path


def test_the_spare_has_the_place_and_the_variables_of_its_own_line(inventory: Path) -> None:
    after = with_spare(inventory, "node3", "node4", keep=False)
    expected = INVENTORY.replace("node3 ansible_host=192.0.2.13 nic=ens5", "@").replace(
        "node4 ansible_host=192.0.2.14 nic=ens6\n", ""
    )
    assert after == expected.replace("@", "node4 ansible_host=192.0.2.14 nic=ens6")


def test_the_host_that_is_kept_becomes_a_spare(inventory: Path) -> None:
    inventory.write_text(with_spare(inventory, "node1", "node4", keep=True))
    cluster = load([inventory])
    assert [host.name for host in cluster.ranks] == ["node4", "node2", "node3"]
    assert [host.name for host in cluster.spares] == ["node1"]


@pytest.mark.parametrize(("host", "gone"), [("node2", "node2 "), ("node4", "node4 ")])
def test_a_host_that_leaves_takes_its_line_with_it(inventory: Path, host: str, gone: str) -> None:
    after = without(inventory, host)
    assert [line for line in INVENTORY.splitlines() if not line.startswith(gone)] == after.splitlines()


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("node9", "node4", "no line of the inventory names node9"),
        ("node2", "node3", "node3 is not a spare"),
        ("node4", "node4", "node4 is not the host of a rank"),
    ],
)
def test_hosts_that_have_no_such_place_are_refused(inventory: Path, old: str, new: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        with_spare(inventory, old, new, keep=False)


def test_the_only_head_is_replaced_and_not_removed(inventory: Path) -> None:
    with pytest.raises(InputError, match="node1 is the head") as caught:
        without(inventory, "node1")
    assert f"deploy replace {inventory} node1 --with SPARE" in (caught.value.hint or "")
    with_spare(inventory, "node1", "node4", keep=False)


def test_ranges_hosts_with_the_chat_page_and_spares_with_a_rank_are_refused(inventory: Path) -> None:
    inventory.write_text(INVENTORY.replace("node3 ansible_host=192.0.2.13 nic=ens5", "10.0.0.[5:6]"))
    with pytest.raises(InputError, match="a range of hosts"):
        with_spare(inventory, "10.0.0.5", "node4", keep=False)
    inventory.write_text(INVENTORY + "\n[webui]\nnode2\n")
    with pytest.raises(InputError, match=r"also in \[webui\]"):
        with_spare(inventory, "node2", "node4", keep=False)
    with_spare(inventory, "node2", "node4", keep=True)
    inventory.write_text(INVENTORY + "\n[more:children]\nspares\n" + "[workers]\nnode4\n")
    with pytest.raises(InputError, match="node4 is a spare and runs a rank"):
        load([inventory])


def test_a_change_that_the_hosts_cannot_carry_is_refused_before_anything_is_written(inventory: Path) -> None:
    with pytest.raises(InputError):
        removal(RunOptions([inventory]), "node2")
    assert inventory.read_text() == INVENTORY
    assert [path.name for path in inventory.parent.iterdir()] == ["cluster.ini"]


def test_a_replacement_is_checked_and_shown_before_it_is_written(inventory: Path) -> None:
    """Its draft takes nobody's file."""
    others = inventory.with_name(f".{inventory.stem}.changed{inventory.suffix}")
    others.write_text("mine\n")
    change = replacement(RunOptions([inventory]), "node3", "node4", keep=False)
    assert (inventory.read_text(), others.read_text()) == (INVENTORY, "mine\n")
    assert "-node3 ansible_host=192.0.2.13 nic=ens5" in change.diff
    assert "+node4 ansible_host=192.0.2.14 nic=ens6" in change.diff
    assert {path.name for path in inventory.parent.iterdir()} == {inventory.name, others.name}


VARIABLES = "[all:vars]\ngpus=8\ngpu=A100-80G\nmodel=org/model\n"
DEFINED = """\
node1 ansible_host=192.0.2.11
node2 ansible_host=192.0.2.12 nic=ens5
node3 ansible_host=192.0.2.13

[head]
node1
[workers]
node2
[rack]
node1
node2
[spares]
node3
"""
# Inventories where node3 takes the place of node2, and what is left of node2 without --keep.
PLACES = {
    "no newline at the end": "[head]\nnode1\n[spares]\nnode3 nic=b\n[workers]\nnode2 nic=a",
    "no newline at the end of the spares": "[head]\nnode1\n[workers]\nnode2 nic=a\n[spares]\nnode3 nic=b",
    "lines of DOS": "[head]\r\nnode1\r\n[workers]\r\nnode2 nic=a\r\n[spares]\r\nnode3 nic=b\r\n[x]\r\nnode9",
    "lines of DOS without a last one": ""
    "[spares]\r\nnode3 nic=b\r\n[head]\r\nnode1\r\n[workers]\r\nnode2 nic=a",
    "mixed lines": "[spares]\nnode3 nic=b\r\n[head]\r\nnode1\n[workers]\nnode2 nic=a\r\nnode4\n",
    "tabs": "[head]\nnode1\n[workers]\n\tnode2\tnic=a\n[spares]\n\tnode3\tnic=b\t# c\n",
    "comments": "# é\n[head] # h\nnode1\n[workers] # w\n; c\nnode2 nic=a # two\n\n"
    "[spares]\n# s\nnode3 nic=b # three\n",
    "quotes": '[head]\nnode1\n[workers]\n"node2" nic="a" x_note="a # b"\n[spares]\n\'node3\' nic=b\n',
    "hosts that are defined above": DEFINED,
    "hosts that are defined below": "[head]\nnode1\n[workers]\nnode2\n"
    "[spares]\nnode3\n[hw]\nnode2 nic=a\nnode3 nic=b\n",
    "a port": "[head]\nnode1\n[workers]\nnode2:2222\n[spares]\nnode3:2223\n",
    "child groups": "[head]\nnode1\n[workers:children]\nrow\n[row]\nnode2\n"
    "[spares:children]\npool\n[pool]\nnode3\n[row:vars]\nnic=r\n",
    "ranges beside it": "[head]\nnode1\n[workers]\nw[1:4]\nnode2\nw[5:6]\n[spares]\nnode3\ns[1:2]\n",
    "a name that begins so": "[head]\nnode1\n[workers]\nnode22\nnode2\n[spares]\nnode33\nnode3\n",
    "bytes of Latin-1 in a comment": b"# caf\xe9\n[head]\nnode1\n[workers]\nnode2\n[spares]\nnode3\n",
}


def stated(path: Path) -> tuple[dict[str, list[str]], dict[str, dict[str, Any]]]:
    """Hosts of each group, and the variables of each host, as Ansible reads them."""
    inventory = InventoryManager(DataLoader(), sources=[str(path)])
    groups = {str(name): [str(host) for host in group.hosts] for name, group in inventory.groups.items()}
    hidden = ("inventory_file", "inventory_dir")
    hosts = {
        str(name): {k: v for k, v in host.vars.items() if k not in hidden}
        for name, host in inventory.hosts.items()
    }
    return groups, hosts


def laid_out(folder: Path, text: str | bytes) -> Path:
    path = folder / "cluster.ini"
    data = text if isinstance(text, bytes) else text.encode()
    newline = b"\r\n" if data.endswith(b"\r\n") else b"\n"
    path.write_bytes(VARIABLES.encode().replace(b"\n", newline) + data)
    return path


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("name", PLACES)
def test_ansible_reads_of_the_result_what_was_meant_and_nothing_else(
    name: str, keep: bool, tmp_path: Path
) -> None:
    path = laid_out(tmp_path, PLACES[name])
    (groups, hosts), data = stated(path), path.read_bytes()
    place = next(group for group in ("workers", "row") if "node2" in groups.get(group, ()))
    spares = next(group for group in ("pool", "spares") if "node3" in groups.get(group, ()))
    rewrite_file(path, with_spare(path, "node2", "node3", keep=keep))
    after, hosts_after = stated(path)
    for group, members in groups.items():
        swapped = {"node2": "node3"} if group == place else {"node3": "node2"} if group == spares else {}
        meant = [swapped.get(host, host) for host in members]
        assert after[group] == [host for host in meant if keep or host != "node2"], group
    assert hosts_after == {host: hosts[host] for host in hosts if keep or host != "node2"}
    lines, lines_after = data.splitlines(keepends=True), path.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if b"node2" not in line and b"node3" not in line]
    assert [line for line in lines_after if line in kept] == kept  # each with its own end of the line


@pytest.mark.parametrize("name", [*PLACES])
def test_a_host_that_is_removed_is_in_no_line_any_more(name: str, tmp_path: Path) -> None:
    path = laid_out(tmp_path, PLACES[name])
    groups, hosts = stated(path)
    rewrite_file(path, without(path, "node2"))
    assert stated(path) == (
        {group: [host for host in members if host != "node2"] for group, members in groups.items()},
        {host: hosts[host] for host in hosts if host != "node2"},
    )


REFUSED = {
    "a range of spares": ("cluster.ini", "[head]\nnode1\n[workers]\nnode2\n[spares]\nnode[3:6]\n", 10),
    "a range with others": ("cluster.ini", "[head]\nnode1\n[workers]\nnode[2:4]\n[spares]\nnode3\n", 8),
    "two places": ("cluster.ini", "[head]\nnode1\n[workers]\nnode2\nnode2 nic=a\n[spares]\nnode3\n", 8),
    "a definition that counts for its place": (
        "cluster.ini", "[head]\nnode1\n[workers]\nnode2 nic=w\n[hw]\nnode3 nic=h\n[spares]\nnode3 nic=s\n", 8
    ),
    "YAML": ("cluster.yml", "# node2\nhead: {hosts: {node1: }}\nworkers:\n  hosts:\n    node2: {nic: a}\n"
             "spares: {hosts: {node3: }}\nall: {vars: {model: org/model, gpus: 8, gpu: A100-80G}}\n", 5),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_changed_safely_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    file, text, line = REFUSED[name]
    path = tmp_path / file
    path.write_text((VARIABLES if file.endswith("ini") else "") + text)
    before = path.read_bytes()
    with pytest.raises(InputError) as refused:
        with_spare(path, "node2", "node3", keep=False)
    assert str(refused.value.where) == f"{path}:{line}"
    assert "by hand" in str(refused.value.hint)
    assert (path.read_bytes(), [*tmp_path.iterdir()]) == (before, [path])


def test_a_host_of_a_folder_of_inventories_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/hosts.ini").write_text(INVENTORY)
    with pytest.raises(InputError, match="one file") as refused:
        removal(RunOptions([tmp_path / "site"]), "node2")
    assert refused.value.where == f"{tmp_path}/site/hosts.ini:6"


def test_variables_of_folders_beside_the_inventory_stay_with_their_hosts(tmp_path: Path) -> None:
    path = laid_out(tmp_path, "[head]\nnode1\n[workers]\nnode2\n[spares]\nnode3\n")
    for name, text in {"host_vars/node3.yml": "nic: b\n", "group_vars/workers.yml": "hca: none\n"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    rewrite_file(path, with_spare(path, "node2", "node3", keep=True))
    [_, worker] = load([path], ["ansible_host=192.0.2.1{{ inventory_hostname[4:] }}"]).ranks
    assert (worker.name, worker.nic, worker.hca) == ("node3", "b", "none")


def test_a_link_to_the_inventory_its_mode_and_owner_stay(tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    file, link = tmp_path / "repository/real.ini", tmp_path / "cluster.ini"
    file.write_text("before\n")
    file.chmod(0o664)
    if os.geteuid() == 0:
        os.chown(file, 1234, 1235)
    owner = (file.stat().st_uid, file.stat().st_gid)
    (tmp_path / "hop.ini").symlink_to("repository/real.ini")
    link.symlink_to("hop.ini")
    rewrite_file(link, "after\r\n")
    assert str(link.readlink()) == "hop.ini"
    assert str((tmp_path / "hop.ini").readlink()) == "repository/real.ini"
    assert file.read_bytes() == b"after\r\n"
    status = file.stat()
    assert (status.st_mode & 0o7777, (status.st_uid, status.st_gid)) == (0o664, owner)
    assert [path.name for path in file.parent.iterdir()] == ["real.ini"]


def test_a_refusal_of_the_changed_text_names_the_inventory(tmp_path: Path) -> None:
    path = tmp_path / "cluster.ini"
    path.write_text(
        "[chat]\nn1\nn2\n[small]\nn2\n[chat:vars]\nmodel=/a\ngpus_per_replica=4\n[small:vars]\nmodel=/b\n"
        "[all:vars]\nansible_host=192.0.2.{{ inventory_hostname[1:] }}\ngpus=8\nmodel_source=path\n"
    )
    with pytest.raises(InputError, match="leave no GPU of n2") as refused:
        removal(RunOptions([path]), "n1")
    assert refused.value.where == str(path)
