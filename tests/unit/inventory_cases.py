"""Inventories as people have them. READ: what comes of each; REFUSED: the sentence and the line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

MODEL = "\n[all:vars]\nmodel=org/model\n"
N2, N3 = "n2 ansible_host=192.0.2.12\n", "n3 ansible_host=192.0.2.13\n"
ONE = "[head]\nn1 ansible_host=192.0.2.11\n"
TWO = f"{ONE}\n[workers]\n{N2}"


class Read(NamedTuple):
    """Files (the first one is the inventory), and values by path: `head.nic`, `settings.model`, `ranks`."""

    files: dict[str, str | bytes]
    expected: dict[str, Any]
    extra: tuple[str, ...] = ()


class Refused(NamedTuple):
    """Files, a part of the sentence, the end of the place, a part of the hint."""

    files: dict[str, str | bytes]
    what: str
    where: str
    hint: str = ""
    extra: tuple[str, ...] = ()
    limit: str | None = None


def ini(hosts: str, variables: str = "") -> dict[str, str | bytes]:
    return {"hosts.ini": f"{hosts}{MODEL}{variables}"}


def setting(line: str) -> dict[str, str | bytes]:
    """Two hosts and one more line, the ninth."""
    return ini(TWO, f"{line}\n")


def setting_is(line: str, value: Any) -> Read:
    return Read(setting(line), {f"settings.{line.partition('=')[0]}": value})


def host_is(words: str, **expected: Any) -> Read:
    return read(
        f"[head]\nn1 ansible_host=192.0.2.11 {words}\n", **{f"head__{n}": v for n, v in expected.items()}
    )


def read(text: str, lines: str = "", **expected: Any) -> Read:
    """Hosts, and lines of [all:vars]; values by path, `__` for a dot, and names of hosts as one text."""
    values = {name.replace("__", "."): value for name, value in expected.items()}
    names = {name: values[name].split() for name in values.keys() & {"ranks", "hosts"}}
    return Read(ini(text, f"{lines}\n" if lines else ""), values | names)


def gives(lines: str, **settings: Any) -> Read:
    return read(TWO, lines, **{f"settings__{name}": value for name, value in settings.items()})


def broken(text: str, what: str, line: int, hint: str = "", file: str = "hosts.ini") -> Refused:
    """The whole inventory, and the line that is named, if any."""
    return Refused({file: text}, what, f"{file}:{line}" if line else file, hint)


def broken_yaml(text: str, what: str, line: int, hint: str) -> Refused:
    return broken(text, what, line, hint, "hosts.yml")


def wrong(hosts: str, what: str, line: int, hint: str = "") -> Refused:
    return broken(f"{hosts}{MODEL}", what, line, hint)


def extra_wrong(what: str, hint: str, *extra: str, where: str = "(-e)") -> Refused:
    return Refused(ini(TWO), what, where, hint, extra)


YAML = """\
all:
  vars: {model: org/model}
  children:
    head: {hosts: {n1: {ansible_host: 192.0.2.11}}}
    workers:
      hosts:
        n9: {ansible_host: 192.0.2.19}
        n2: {ansible_host: 192.0.2.12}
"""
SCRIPT = """\
#!/bin/sh
echo '{"head": {"hosts": ["n1"], "vars": {"model": "org/model"}}, "_meta": {"hostvars":
 {"n1": {"ansible_host": "192.0.2.11"}}}}'
"""
CONSTRUCTED = (
    "plugin: ansible.builtin.constructed\nstrict: true\ngroups:\n  head: inventory_hostname == 'n1'\n"
)

READ: dict[str, Read] = {
    # Hosts and ranks.
    "two hosts": read(TWO, ranks="n1 n2", webui__name="n1"),
    "workers as written": read(f"{ONE}[workers]\n{N3}{N2}", ranks="n1 n3 n2"),
    "workers before the head": read(f"[workers]\n{N2}{ONE}", ranks="n1 n2"),
    "a range": read(
        ONE + '[workers]\nw[1:3] ansible_host="192.0.2.2{{ inventory_hostname[1:] }}"\n',
        ranks="n1 w1 w2 w3",
        worker__2__address="192.0.2.23",
    ),
    "a range with zeros": read(
        ONE + '[workers]\nnode[07:09] ansible_host="192.0.2.{{ inventory_hostname[4:] | int }}"\n',
        ranks="n1 node07 node08 node09",
        worker__0__address="192.0.2.7",
    ),
    "a range of letters": read(
        ONE + "[workers]\nr-[a:b] ansible_host=\"192.0.2.2{{ {'r-a': 1, 'r-b': 2}[inventory_hostname] }}\"\n",
        ranks="n1 r-a r-b",
    ),
    "a range with a step": read(
        ONE + '[workers]\nw[2:6:2] ansible_host="192.0.2.2{{ inventory_hostname[1:] }}"\n',
        ranks="n1 w2 w4 w6",
    ),
    "addresses as names": read(
        "[head]\n192.0.2.1\n[workers]\n192.0.2.[2:3]\n", ranks="192.0.2.1 192.0.2.2 192.0.2.3"
    ),
    "a port after the name": read("[head]\n192.0.2.1:2222\n", head__login__port=2222),
    "child groups": read(
        f"{ONE}[workers:children]\nzrack\narack\n[zrack]\n{N2}[arack]\n{N3}", ranks="n1 n2 n3"
    ),
    "child groups defined first": read(
        f"[zrack]\n{N2}[arack]\n{N3}{ONE}[workers:children]\nzrack\narack\n", ranks="n1 n2 n3"
    ),
    "hosts and child groups": read(
        f"{ONE}[workers]\nn4 ansible_host=192.0.2.14\n[workers:children]\nrack\n[rack]\n{N2}",
        ranks="n1 n4 n2",
    ),
    "groups of groups": read(
        f"{ONE}[workers:children]\nrow2\nrow1\n[row2:children]\nr4\nr3\n[row1:children]\nr2\nr1\n"
        + "".join(f"[r{n}]\nn{n + 1} ansible_host=192.0.2.{n + 11}\n" for n in (4, 3, 2, 1)),
        ranks="n1 n5 n4 n3 n2",
    ),
    "a host in two child groups": read(
        f"{ONE}[workers:children]\na\nb\n[a]\n{N2}[b]\nn2\n{N3}", ranks="n1 n2 n3"
    ),
    "a group for the login": read(
        TWO + "[gpu:children]\nhead\nworkers\n[gpu:vars]\nansible_user=ops\n",
        head__login__user="ops",
        worker__0__login__user="ops",
    ),
    "a page of its own": read(
        TWO + "[webui]\nchat ansible_host=192.0.2.20\n", webui__name="chat", ranks="n1 n2", hosts="n1 n2 chat"
    ),
    "the page on a worker": read(TWO + "[webui]\nn2\n", webui__name="n2"),
    "other hosts and groups": read(
        TWO + "[db]\npostgres[01:40].example.net\n[db:vars]\nengine_prot=1\n", ranks="n1 n2"
    ),
    "comments and blank lines": read(
        "# head\n\n[head] # first\n  n1   ansible_host=192.0.2.11  # rank 0\n", ranks="n1"
    ),
    "lines of DOS": Read({"hosts.ini": (TWO + MODEL).replace("\n", "\r\n")}, {"ranks": ["n1", "n2"]}),
    "no suffix": Read({"hosts": TWO + MODEL}, {"ranks": ["n1", "n2"]}),
    "an unusual suffix": Read({"hosts.inventory": TWO + MODEL}, {"ranks": ["n1", "n2"]}),
    # Forms.
    "YAML": Read({"hosts.yml": YAML}, {"ranks": ["n1", "n9", "n2"]}),
    "YAML with an old suffix": Read({"hosts.yaml": YAML}, {"ranks": ["n1", "n9", "n2"]}),
    "YAML without all": Read(
        {"hosts.yml": "head: {hosts: {192.0.2.1: }, vars: {model: org/model}}\n"}, {"ranks": ["192.0.2.1"]}
    ),
    "JSON": Read(
        {"hosts.json": '{"head": {"hosts": {"192.0.2.1": {}}, "vars": {"model": "org/model", "gpus": 8}}}'},
        {"head.gpus": 8},
    ),
    "YAML lists": Read(
        {"hosts.yml": YAML.replace("org/model}", "org/model, engine_args: [--dtype, half]}")},
        {"settings.engine_args": ["--dtype", "half"]},
    ),
    "YAML mappings": Read(
        {"hosts.yml": YAML.replace("org/model}", "org/model, engine_env: {A: 1, B: x y}}")},
        {"settings.engine_env": {"A": "1", "B": "x y"}},
    ),
    "a program": Read({"hosts.sh": SCRIPT}, {"ranks": ["n1"]}),
    "a folder": Read({"site/10-head": ONE, "site/20-vars.ini": MODEL[1:]}, {"ranks": ["n1"]}),
    "a folder with YAML": Read(
        {"site/a.yml": YAML, "site/group_vars/all.yml": "gpus: 8\n"},
        {"head.gpus": 8, "ranks": ["n1", "n9", "n2"]},
    ),
    "a plugin": Read(
        {"site/1-hosts.ini": "n1 ansible_host=192.0.2.11\n" + MODEL, "site/2-constructed.yml": CONSTRUCTED},
        {"ranks": ["n1"]},
    ),
    "group_vars": Read(
        {**ini(TWO), "group_vars/workers.yml": "nic: ens5\n"}, {"head.nic": None, "worker.0.nic": "ens5"}
    ),
    "group_vars in a folder": Read(
        {**ini(TWO), "group_vars/all/gpu.yml": "gpus: 4\n", "group_vars/all/net.yml": "nic: ib0\n"},
        {"head.gpus": 4, "head.nic": "ib0"},
    ),
    "host_vars": Read({**ini(TWO), "host_vars/n2.yml": "hca: none\n"}, {"worker.0.hca": "none"}),
    "host_vars over group_vars": Read(
        {**ini(TWO), "host_vars/n2.yml": "gpus: 2\n", "group_vars/all.yml": "gpus: 8\n"},
        {"head.gpus": 8, "worker.0.gpus": 2},
    ),
    # Jinja.
    "a value in a value": gives(
        "data_root=/data\nweights_dir={{ data_root }}/models", weights_dir="/data/models"
    ),
    "a chain of values": gives(
        "a_root=/data\nb_root={{ a_root }}/b\nweights_dir={{ b_root }}/models", weights_dir="/data/b/models"
    ),
    "a filter": read(TWO, "served_model_name={{ model | basename | upper }}", served="MODEL"),
    "a number": gives("base=30000\nengine_port={{ base | int + 1 }}", engine_port=30001),
    "a truth value": gives("keep_fp8={{ 1 == 1 }}", keep_fp8=True),
    "another host's value": read(TWO, "nic={{ hostvars['n1']['my_nic'] }}\nmy_nic=ib7", worker__0__nic="ib7"),
    "a group's first host": read(TWO, "my_first={{ groups['head'][0] }}\nnic={{ my_first }}", head__nic="n1"),
    "the environment": gives("weights_dir={{ lookup('env', 'HF_TEST_ROOT') }}/m", weights_dir="/from-env/m"),
    "an address by template": read(
        "[head]\nn1 my_ip=192.0.2.7\n", "ansible_host={{ my_ip }}", head__address="192.0.2.7"
    ),
    "a user by template": read(ONE, "my_user=ops\nansible_user={{ my_user }}", head__login__user="ops"),
    "a password by template": read(
        ONE, "my_secret=s3\nansible_password={{ my_secret }}", head__login__password="s3"
    ),
    "a template that only a role evaluates": read(
        TWO, "my_proxy={{ ansible_facts['env']['PROXY'] }}", ranks="n1 n2"
    ),
    # Variables of one's own.
    "own, used in a template": read(TWO, "weights_root=/d\nweights_dir={{ weights_root }}/m", notes=0),
    "own, with a prefix": read(TWO, "my_engine_port=1\nx_modle=2", notes=0),
    "own, declared": read(TWO, 'own_variables="site_* modle"\nmodle=1\nsite_x=2', notes=0),
    "own, like nothing of ours": read(TWO, "datacenter=fra1\nrack=7", notes=2),
    "Ansible's own": read(TWO, "ansible_python_interpreter=/usr/bin/python3.11", notes=0),
    "a role's variable": read(TWO, "docker_engine_data_root=/data/docker", notes=0),
    # Logins.
    "user, port, key": host_is(
        "ansible_user=ops ansible_port=2222 ansible_ssh_private_key_file=/k",
        login__user="ops",
        login__port=2222,
        login__private_key=Path("/k"),
    ),
    "older names": host_is(
        "ansible_ssh_user=ops ansible_ssh_port=2222 ansible_private_key_file=/k",
        login__user="ops",
        login__port=2222,
        login__private_key=Path("/k"),
    ),
    "nothing: ssh decides": host_is("", login__user=None, login__port=None, login__private_key=None),
    "a password": host_is("ansible_password=s3cret", login__password="s3cret"),
    "a password, older": host_is("ansible_ssh_pass='with space'", login__password="with space"),
    "sudo's password": host_is("ansible_become_password=b", login__become__password="b"),
    "sudo's password, older": host_is("ansible_become_pass=b", login__become__password="b"),
    "sudo's user": host_is("ansible_become_user=svc", login__become__user="svc"),
    "root needs no sudo": host_is("ansible_user=root", login__become=None),
    "no sudo": host_is("ansible_user=ops ansible_become=false", login__become=None),
    "a jump host": host_is(
        "ansible_ssh_common_args='-o ProxyJump=ops@bastion'",
        login__more_options=("-o", "ProxyJump=ops@bastion"),
    ),
    "several options": host_is(
        "ansible_ssh_common_args='-o IdentitiesOnly=yes -o UserKnownHostsFile=/k'",
        login__more_options=("-o", "IdentitiesOnly=yes", "-o", "UserKnownHostsFile=/k"),
    ),
    "a jump host, -J": host_is("ansible_ssh_extra_args='-J bastion'", login__more_options=("-J", "bastion")),
    "a proxy command": host_is(
        "ansible_ssh_common_args='-o ProxyCommand=\"ssh -W %h:%p bastion\"'",
        login__more_options=("-o", "ProxyCommand=ssh -W %h:%p bastion"),
    ),
    "args before": host_is("ansible_ssh_args='-o ProxyJump=b'", login__options=("-o", "ProxyJump=b")),
    "no host keys": host_is(
        "ansible_host_key_checking=false", login__options=("-o", "StrictHostKeyChecking=no")
    ),
    "another connection": host_is(
        "ansible_connection=docker", login__obstacle="ansible_connection=docker: this verb needs SSH or local"
    ),
    "another become method": host_is(
        "ansible_become_method=su", login__obstacle="ansible_become_method=su: this verb needs sudo"
    ),
    # Values.
    "devices with spaces": read(TWO, "hca='mlx5_0 mlx5_1'", head__hca="mlx5_0,mlx5_1"),
    "numbers of YAML": Read(
        {"hosts.yml": YAML.replace("model}", "model, gpus: 8, gpu_devices: [4, 5], engine_args: [--tp, 2]}")},
        {"settings.gpu_devices": ["4", "5"], "settings.engine_args": ["--tp", "2"]},
    ),
    "numbers with commas on a host's line": host_is("cpu_cores=0,2,4-7", cpu_cores="0,2,4-7"),
    "numbers with commas alone": host_is("cpu_cores=0,2", cpu_cores="0,2"),
    "cores with spaces": read(TWO, "cpu_cores='0-3, 8-11 16'", head__cpu_cores="0-3,8-11,16"),
    "addresses with spaces": read(
        ONE,
        "weights_addresses='10.1.0.1, 10.2.0.1 10.3.0.1'",
        head__weights_addresses=("10.1.0.1", "10.2.0.1", "10.3.0.1"),
    ),
    "names with commas": read(ONE, "own_variables=modle,site_*\nmodle=1\nsite_x=1", notes=0),
    "spaces after commas": read(TWO, "hca=mlx5_0, mlx5_1", head__hca="mlx5_0,mlx5_1"),
    "devices with ports": read(TWO, "hca=mlx5_0:1,mlx5_1:1", head__hca="mlx5_0:1,mlx5_1:1"),
    "all devices but one": read(TWO, "hca=^mlx5_0", head__hca="^mlx5_0"),
    "addresses for weights": read(
        "[head]\nn1 address=192.0.2.1 weights_addresses=10.1.0.1,10.2.0.1\n",
        head__weights_addresses=("10.1.0.1", "10.2.0.1"),
    ),
    "memory": setting_is("shm_size=512M", "512m"),
    "memory in GiB": setting_is("shm_size=32GiB", "32g"),
    "memory in T": setting_is("shm_size=1T", "1024g"),
    "memory with a fraction": setting_is("shm_size=1.5g", "1.5g"),
    "a port of the page below 1024": setting_is("webui_port=80", 80),
    "a folder in memory": setting_is("weights_dir=/dev/shm/models", "/dev/shm/models"),
    "an image at a registry with a port": setting_is(
        "engine_image=hub.lan:5000/a/b:v1", "hub.lan:5000/a/b:v1"
    ),
    "an image by digest": setting_is(f"engine_image=a/b@sha256:{'0' * 64}", f"a/b@sha256:{'0' * 64}"),
    "a version like a number": setting_is("model_revision=1.10", "1.1"),
    "arguments with quotes": setting_is(
        "engine_args=\"--json '{}' --mem-fraction-static 0.8\"",
        ["--json", "{}", "--mem-fraction-static", "0.8"],
    ),
    "extra variables": Read(
        setting("engine_port=1999"), {"settings.engine_port": 2999}, ("engine_port=2999",)
    ),
    "extra JSON": Read(
        setting("engine_port=1999"), {"settings.engine_port": 2999}, ('{"engine_port": 2999}',)
    ),
    "where weights are served from": setting_is("weights_shared=stage", "stage"),
    "weights in the page cache": setting_is("weights_warm_cache=true", True),
    "an extra template": Read(
        ini(TWO), {"settings.weights_dir": "/x/m"}, ("my_x=/x", "weights_dir={{ my_x }}/m")
    ),
}

_SETTINGS: dict[str, tuple[str, str, str]] = {
    # Wrong values: the line, a part of the sentence, a part of the hint.
    "port not a number": ("ansible_port=abc", "ansible_port=abc is not a port number", "ansible_port=22"),
    "port too large": ("ansible_port=65536", "is not a port number", "1 to 65535"),
    "port zero": ("ansible_ssh_port=0", "is not a port number", "1 to 65535"),
    "port negative": ("ansible_port=-22", "is not a port number", ""),
    "engine port too large": ("engine_port=99999", "less than or equal to 65535", ""),
    "engine port privileged": ("engine_port=80", "greater than or equal to 1024", "engine_port"),
    "rendezvous privileged": ("dist_port=443", "greater than or equal to 1024", ""),
    "rendezvous on the engine": ("dist_port=30000", "dist_port have the same port 30000", "free port"),
    "page on the engine": ("webui_port=30000", "webui_port and engine_port", "free port"),
    "engine in the weights' ports": ("engine_port=5010", "engine_port and weights_port", "free port"),
    "weights on the rendezvous": ("weights_port=5000", "dist_port and weights_port", "free port"),
    "page on SSH": ("webui_port=22", "webui_port and SSH", "free port"),
    "memory zero": ("shm_size=0", "less than 1m", "shm_size"),
    "memory without a unit": ("shm_size=32", "less than 1m", ""),
    "memory in GB": ("shm_size=32GB", "write 32g", ""),
    "memory in words": ("shm_size=lots", "such as 32g", ""),
    "memory of a GPU without a unit": ("gpu_memory=94", "less than 1m", ""),
    "memory of a GPU in GB": ("gpu_memory=94GB", "write 94g", ""),
    "memory of a GPU in words": ("gpu_memory=much", "such as 32g", ""),
    "a GPU's capability in words": ("gpu_capability=hopper", "pattern", ""),
    "a GPU's capability without a point": ("gpu_capability=90", "pattern", ""),
    "ranks in words": ("tensor_parallel=zero", "valid integer", ""),
    "no rank a stage": ("tensor_parallel=0", "greater than or equal to 1", "tensor_parallel"),
    "no stage": ("pipeline_parallel=0", "greater than or equal to 1", "pipeline_parallel"),
    "GPUs by the engine's environment": (
        'engine_env="NCCL_DEBUG=INFO CUDA_VISIBLE_DEVICES=5,6,7,8"',
        'gpu_devices="5 6 7 8" for CUDA_VISIBLE_DEVICES',
        "engine_env",
    ),
    "a relative source": ("engine_volumes=data:/data", "SOURCE:TARGET with absolute paths", "engine_volumes"),
    "a relative target": ("engine_volumes=/data:data", "SOURCE:TARGET with absolute paths", ""),
    "a mode that no volume has": ("engine_volumes=/data:/data:rx", "SOURCE:TARGET with absolute paths", ""),
    "a source above itself": ("engine_volumes=/data/../etc:/data", "without `..`", ""),
    "a target above itself": ("engine_volumes=/data:/data/../etc", "without `..`", ""),
    "a control character": ("engine_volumes=/da\x07ta:/data", "control characters", ""),
    "weights in the root": ("weights_dir=/", "folder of the system", "weights_dir"),
    "weights in the root, twice": ("weights_dir=//", "folder of the system", ""),
    "weights in /etc": ("weights_dir=/etc/models", "folder of the system", ""),
    "weights in /usr": ("weights_dir=/usr", "folder of the system", ""),
    "weights in /var/lib": ("weights_dir=/var/lib/", "folder of the system", ""),
    "weights in /home": ("weights_dir=/home", "folder of the system", ""),
    "weights in /proc": ("weights_dir=/proc/1", "folder of the system", ""),
    "weights relative": ("weights_dir=models", "absolute path", ""),
    "weights in HOME": ("weights_dir=~/models", "absolute path", ""),
    "weights above": ("weights_dir=/data/../etc", "without `..`", ""),
    "weights with a colon": ("weights_dir=/data:ro", "without `..`, `:`", ""),
    "an image without a tag": ("engine_image=lmsysorg/sglang", "lmsysorg/sglang:TAG", "engine_image"),
    "the page's image without a tag": ("webui_image=open-webui", "open-webui:TAG", ""),
    "an image at a port without a tag": ("engine_image=hub.lan:5000/sglang", "has no tag", ""),
    "an image with a space": ("engine_image=a b:1", "image name", ""),
    "an image with capitals": ("engine_image=Org/Image:1", "image name", ""),
    "devices by semicolons": ("hca=mlx5_0;mlx5_1", "separated by commas", "hca"),
    "cores in words": ("cpu_cores=all", "cpu_cores=all: it must be cores separated by commas", ""),
    "cores beyond any host": ("cpu_cores=0-999999", "cores separated by commas", ""),
    "an address of letters": ("weights_addresses=10.1.0.1,eth1", "weights_addresses", ""),
    "the plan's choice as a device": ("hca=auto", "leave the line out", "hca"),
    "a device that is a truth value": ("hca=false", "leave the line out", "hca"),
    "an empty device": ("hca=mlx5_0,,mlx5_1", "separated by commas", ""),
    "a source that does not exist": ("docker_engine_source=alyun", "is not a source", "aliyun, "),
    "a role's choice": ("nvidia_driver_kind=free", "must be one of", "role nvidia_driver"),
    "a role's number": ("weights_port=two", "weights_port", "role weights"),
    "a rate": ("download_rate=1GB", "a number and a unit", "download_rate"),
    "another program's proxy": (
        "proxy=http://ops:hunter2@192.0.2.3:3128",
        "proxy=http://********@192.0.2.3:3128: input should be true or false",
        "headfirst_NAME",
    ),
    "a truth value": ("keep_fp8=perhaps", "true or false", ""),
    "no value in a pair": ("engine_env=A", "'A' is not of the form NAME=VALUE", ""),
    "quotes not closed": ("engine_args=--a 'b", "no closing quotation", "engine_args"),
    "quotes of ssh not closed": ("ansible_ssh_common_args=-o 'x", "options of ssh", "Close the quotes"),
    "an undefined name": ("weights_dir={{ no_such }}/m", "'no_such' is undefined", "Define"),
    "a broken template": ("weights_dir={{ /m", "weights_dir", ""),
    "an undefined name in a login": (
        "ansible_user={{ no_such }}",
        "ansible_user: 'no_such' is undefined",
        "",
    ),
    "become neither": ("ansible_become=perhaps", "neither true nor false", ""),
    # Names.
    "engine_prot": ("engine_prot=1", "unknown variable engine_prot", "engine_port"),
    "modle": ("modle=x", "unknown variable modle", "Did you mean model?"),
    "nick": ("nick=1", "unknown variable nick", "Did you mean nic?"),
    "a role's variable, misspelled": (
        "docker_engine_data_rot=1",
        "unknown variable docker_engine_data_rot",
        "Did you mean docker_engine_data_root?",
    ),
    "tp": ("tp=8", "unknown variable tp", "tensor_parallel"),
    "ssh_user": ("ssh_user=root", "unknown variable ssh_user", "ansible_user"),
    "num_gpus": ("num_gpus=8", "unknown variable num_gpus", "gpus"),
    "a prefix of ours": ("engine_colour=red", "unknown variable engine_colour", ""),
    "weights_path": ("weights_path=/x", "unknown variable weights_path", "weights_dir"),
    "capitals": ("GPUS=8", "unknown variable GPUS", "Did you mean gpus?"),
    "a flag of an engine": (
        "max_running_requests=8",
        "unknown variable",
        "engine_args='--max-running-requests …'",
    ),
    "a flag of another engine": ("max_model_len=8192", "unknown", "engine_args='--context-length …'"),
    "a flag of the inventory's engine": (
        "max_model_len=8192\nengine=vllm",
        "unknown variable",
        "engine_args='--max-model-len …'",
    ),
    "a flag without a counterpart": ("enable_sleep_mode=true", "unknown variable", "an argument of vLLM"),
    "a flag without a value": ("dp_attention=true", "unknown variable", "'--enable-dp-attention'"),
    "the beginning of a flag": ("mem_fraction=0.8", "unknown variable", "--mem-fraction-static …"),
    "a flag that the plan sets": ("api_key=x", "unknown variable api_key", "The plan makes a key"),
    "arguments by an engine's name": ("vllm_args=x", "unknown variable", "Did you mean engine_args?"),
    "a version by an engine's name": ("vllm_version=1", "unknown variable", "Did you mean engine_version?"),
    "a group": ("spares=n2", "unknown variable spares", "[spares] is a group"),
    "copies": ("copies=2", "unknown variable copies", "Did you mean replicas?"),
    "prefill": (
        "prefill_replicas=2",
        "prefill_replicas is set without decode_replicas",
        "prefill_replicas=1 decode_replicas=1",
    ),
    "prefill workers": ("prefill_workers=2", "unknown variable prefill_workers", "decode_replicas"),
    "decode": ("decode_nodes=2", "unknown variable decode_nodes", "decode_replicas"),
    "what is served": ("expert_copies=2", "unknown variable expert_copies", "lists all"),
    "a prefix that resembles nothing": ("weights_backup=/b", "unknown", "deploy variables weights_ lists"),
    # Sections.
    "no value": ("keep_fp8", "Expected key=value", "NAME=VALUE"),
}

REFUSED: dict[str, Refused] = {
    "two at once": Refused(
        setting("modle=x\ntp=8"),
        "hosts.ini:10: unknown variable tp. Did you mean tensor_parallel?",
        "hosts.ini",
        "start its name with my_",
    ),
    "addresses for weights on one host only": wrong(
        "[head]\nn1 address=192.0.2.1 weights_addresses=10.1.0.1,10.2.0.1\n[workers]\nn2 address=192.0.2.2\n",
        "weights_addresses of n2 and n1 differ in number: 0 and 2",
        4,
        "one address of each interface",
    ),
    "the same address for weights twice": wrong(
        "[head]\nn1 address=192.0.2.1 weights_addresses=10.1.0.1,10.2.0.1\n"
        "[workers]\nn2 address=192.0.2.2 weights_addresses=10.1.0.2,10.2.0.1\n",
        "n1 and n2 have the same address 10.2.0.1",
        4,
        "own address",
    ),
    **{
        name: Refused(setting(line), what, "hosts.ini:9", hint)
        for name, (line, what, hint) in _SETTINGS.items()
    },
    "a space after the comma on a host's line": wrong(
        "[head]\nn1 ansible_host=192.0.2.1 hca=mlx5_0, mlx5_1\n", "got: mlx5_1", 2, "comma"
    ),
    "a password is not quoted": wrong(
        "[head]\nn1 ansible_password=a hunter2\n", "host variable assignment", 2
    ),
    "a bracket is open": broken("[head\nn1\n", "a bracket is not closed", 1, "[head]"),
    "a range without an end": broken("[head]\nn[1:x]\n", "node[01:16]", 2, "as many digits"),
    "an unknown kind of section": broken("[head]\nn1\n[head:var]\na=1\n", "unknown type", 3, "[GROUP:vars]"),
    "variables of no group": broken(
        "[head]\nn1\n[haed:vars]\na=1\n", "undefined group", 3, "correct its name"
    ),
    "children of no group": broken("[head]\nn1\n[workers:children]\nrack\n", "undefined group", 4),
    "a quote is open": wrong("[head]\nn1 engine_args='--a\n", "a quote is not closed", 2, "Close the quote"),
    "prose": Refused({"notes.txt": "Our servers are fine\n"}, "Expected key=value", "notes.txt:1"),
    "tabs in YAML": broken_yaml("head:\n  hosts:\n\tn1:\n", "a tab in YAML", 3, "spaces"),
    "broken YAML": broken_yaml("head:\n  hosts: [\n", "YAML", 3, "brackets"),
    "YAML that is a list": broken_yaml("- n1\n- n2\n", "not a mapping of groups", 0, "all:"),
    "an unknown plugin": broken_yaml("plugin: no.such.one\n", "unknown plugin", 0, "collection"),
    "a program that fails": Refused({"hosts.sh": "#!/bin/sh\nexit 3\n"}, "exit code 3", "hosts.sh", "--list"),
    "broken group_vars": Refused(
        {**ini(ONE), "group_vars/all.yml": "a: [\nb: c\n"}, "YAML", "group_vars/all.yml:3"
    ),
    "misspelled in group_vars": Refused(
        {**ini(ONE), "group_vars/all.yml": "---\nengine_prot: 1\n"}, "engine_prot", "group_vars/all.yml:2"
    ),
    "a byte order mark": Refused(
        {"hosts.ini": b"\xef\xbb\xbf" + ONE.encode()}, "byte order mark", "hosts.ini:1", "without BOM"
    ),
    "UTF-16": Refused({"hosts.ini": ONE.encode("utf-16")}, "UTF-16", "hosts.ini:1", "iconv"),
    "empty": Refused({"hosts.ini": ""}, "no head", "hosts.ini", "[head]"),
    "own groups": Refused(
        ini("[web]\nw1 ansible_host=192.0.2.9\n[gpu]\nn1 ansible_host=192.0.2.1\n"),
        "no group sets model=",
        "hosts.ini",
        "[gpu:vars]",
    ),
    "own groups in YAML": broken_yaml(
        "all:\n  children:\n    web: {hosts: {w1: }}\n    gpu_nodes: {hosts: {n1: }}\n",
        "the groups are web, gpu_nodes",
        0,
        "[gpu_nodes:vars]",
    ),
    "no head": Refused(ini("[workers]\n192.0.2.1\n"), "no head", "hosts.ini"),
    "two heads": wrong("[head]\n192.0.2.[1:2]\n", "two heads: 192.0.2.1, 192.0.2.2", 2),
    "two pages": wrong(ONE + "[webui]\n192.0.2.[1:2]\n", "[webui] has 2 hosts", 4),
    "head and worker": wrong(ONE + "[workers]\nn1\n", "both head and worker", 4),
    "a host twice": wrong(TWO + "n2\n", "n2 is listed twice in [workers]", 6, "one rank"),
    "a range that lists a host again": wrong(
        ONE + "[workers]\n192.0.2.[2:4]\n192.0.2.3\n", "192.0.2.3 is listed twice", 5
    ),
    "an address twice": wrong(ONE + "[workers]\nn2 ansible_host=192.0.2.11\n", "same address 192.0.2.11", 4),
    "an address of two numbers": wrong("[head]\nn1 address=192.0.2\n", "address=192.0.2", 2),
    "a name that does not resolve": wrong(
        "[head]\nnode1.invalid\n", "does not resolve", 2, "address=192.0.2.11"
    ),
    "a name without an address": wrong("[head]\nn1\n", "n1 has no address", 2),
    "a name of this machine": wrong(
        "[head]\nn1 ansible_host=localhost ansible_port=2222\n",
        "neither other nodes nor clients",
        2,
        "ansible_host=",
    ),
    "a setting that differs": wrong(
        TWO + "[workers:vars]\nengine_port=31000\n", "setting of the whole cluster", 7, "[all:vars]"
    ),
    "no model": Refused({"hosts.ini": TWO}, "no model is named", "hosts.ini", "deploy models INVENTORY"),
    "a relative model folder": Refused(
        ini(TWO, "model_source=path\n"), "has no model org/model", "hosts.ini:8", "folder on the head"
    ),
    "a limit of no host": Refused(ini(TWO), "--limit nothing", "", "n1, n2", limit="nothing"),
    "a limit of another group": Refused(
        ini(TWO + "[db]\nd1\n"), "matches no host", "hosts.ini", "n1", limit="db"
    ),
    "a limit by a wrong pattern": Refused(ini(TWO), "", "--limit", limit="~("),
    "extra file missing": extra_wrong(
        "no such file: missing.yml", "", "@missing.yml", where="-e @missing.yml"
    ),
    "extra word": extra_wrong("not KEY=VALUE", "Quote", "engine_args=--dtype half"),
    "extra JSON broken": extra_wrong("", "JSON", '{"a": '),
    "extra file without @": extra_wrong("prepend", "", "./vars.yml"),
    "extra value": extra_wrong("less than 1m", "", "shm_size=1k"),
    "extra value of a name that the file has": Refused(
        setting("shm_size=8g"), "less than 1m", "(-e)", extra=("shm_size=1k",)
    ),
    "extra name": extra_wrong("unknown variable modle", "model", "modle=1"),
}
