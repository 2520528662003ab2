"""A closed network: nodes and a controller without a route out go from bare to an answer, from a bundle.

The bundle is made here, where there is a network. The third node is the controller: it has a checkout, the
bundle and the name of its signer, and reaches the other two only.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from bare_nodes import BareNodes, bare_nodes
from headfirst.control import demo

pytestmark = pytest.mark.lab
ROOT = Path(__file__).resolve().parents[2]
DEPLOY = Path(sys.executable).with_name("deploy")
NAME, NETWORK = "test-bundle", "10.213.89"
QUESTION = "Hello!"
INVENTORY = """\
[head]
node1 ansible_host={network}.11

[workers]
node2 ansible_host={network}.12

[all:vars]
ansible_user=headfirst
ansible_ssh_private_key_file=/root/lab/key
ansible_ssh_common_args=-o UserKnownHostsFile=/root/lab/known_hosts -o IdentitiesOnly=yes
nic=eth0
cpu_cores=0-1
engine_device=cpu
engine_image_source=build
webui_image_source=build
model_source=path
model={model}
served_model_name=headfirst-demo
shm_size=64m
ready_timeout=600
"""
# What the documentation gives: docs/closed-networks.md.
CONTROLLER = """\
set -e
cd /root
tar -xf /srv/headfirst/cluster.tar SHA256SUMS SHA256SUMS.sig apt/debian-12 controller
signers="-f /srv/headfirst/signers -I me@example.org"
ssh-keygen -Y verify $signers -n headfirst-bundle -s SHA256SUMS.sig < SHA256SUMS
sha256sum --check --quiet --ignore-missing SHA256SUMS
echo "deb [trusted=yes] file:$PWD/apt/debian-12 ./" > closed.list
mkdir -p lists/partial
closed="-o Dir::Etc::sourcelist=$PWD/closed.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$PWD/lists"
export DEBIAN_FRONTEND=noninteractive
apt-get $closed -qq update
apt-get $closed -qq install --yes --no-install-recommends python3-venv > /dev/null
mkdir headfirst lab
tar -C headfirst -xf /srv/headfirst/checkout.tar
install -m 600 /srv/headfirst/key lab/key
cp /srv/headfirst/known_hosts lab/
"""
BUNDLE = "--bundle /srv/headfirst/cluster.tar --signers /srv/headfirst/signers"
UP = f"up /srv/headfirst/closed.ini {BUNDLE}"
APT_STATE = "cat $(find /etc/apt -type f | sort) | sha256sum; find /var/lib/apt/lists | sort | sha256sum"


@dataclass(frozen=True)
class Closed:
    """Three nodes without a route out, and the folder that they see at /srv/headfirst."""

    nodes: BareNodes
    shared: Path

    def output(self, node: int, command: str) -> str:
        done = self.nodes.run(node, command)
        assert done.returncode == 0, f"node{node}: {command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout.strip()

    def deploy(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command on the controller, as in the documentation."""
        sources = "PIP_NO_INDEX=1 PIP_FIND_LINKS=/root/controller"
        return self.nodes.run(3, f"cd /root/headfirst && {sources} ./deploy {' '.join(words)}")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the inventory, the bundle of it with the weights, and who signed it."""
    folder = tmp_path_factory.mktemp("made")
    model = folder / demo.CHAT_MODEL
    with demo.checkpoint(demo.CHAT_MODEL) as source:
        shutil.copytree(source, model)
    (folder / "closed.ini").write_text(INVENTORY.format(network=NETWORK, model=model))
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "signer"], check=True)
    public = (folder / "signer.pub").read_text()
    (folder / "signers").write_text(f'me@example.org namespaces="headfirst-bundle" {public}')
    done = bundle(folder)
    assert not done["kept"] and done["signed"] and not done["notes"]
    return folder


def bundle(folder: Path) -> dict[str, object]:
    argv = [DEPLOY, "bundle", folder / "closed.ini", "-o", folder / "cluster.tar", "--weights"]
    argv += ["--sign", folder / "signer", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.fixture(scope="module")
def closed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    with bare_nodes(NAME, NETWORK, 3, tmp_path_factory.mktemp("lab")) as nodes:
        shared = nodes.described.shared_dir
        for name in ("cluster.tar", "closed.ini", "signers"):
            (shared / name).hardlink_to(made / name)
        shutil.copyfile(nodes.access.private_key, shared / "key")
        shutil.copyfile(nodes.access.known_hosts, shared / "known_hosts")
        archive = ["git", "-C", ROOT, "archive", f"--output={shared / 'checkout.tar'}", "HEAD"]
        subprocess.run(archive, check=True)
        found = Closed(nodes, shared)
        for node in (1, 2, 3):
            found.output(node, "ip route del default")
        yield found


def test_a_bundle_that_is_there_and_whole_is_kept(made: Path) -> None:
    before = (made / "cluster.tar").stat()
    assert bundle(made)["kept"]
    after = (made / "cluster.tar").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_nodes_have_no_way_out(closed: Closed) -> None:
    for node in (1, 2, 3):
        assert closed.nodes.run(node, "ip route get 192.0.2.1").returncode != 0
    once = "-o Acquire::Retries=0 -o Acquire::http::Timeout=5 --error-on=any"
    assert closed.nodes.run(1, f"apt-get {once} update").returncode != 0
    assert closed.nodes.run(3, "ping -c 1 -W 5 " + f"{NETWORK}.11").returncode == 0


def test_the_controller_is_set_up_from_the_bundle(closed: Closed) -> None:
    assert 'Good "headfirst-bundle" signature' in closed.output(3, CONTROLLER)
    done = closed.deploy("--version")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_changed_byte_is_found_before_anything_is_installed(closed: Closed) -> None:
    changed = closed.shared / "changed.tar"
    shutil.copyfile(closed.shared / "cluster.tar", changed)
    with changed.open("r+b") as file:
        file.seek(changed.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    done = closed.deploy(UP.replace("cluster.tar", "changed.tar"))
    changed.unlink()
    assert done.returncode == 1 and "its hash is another one" in done.stderr, done.stdout + done.stderr
    for node in (1, 2):
        assert closed.nodes.run(node, "test -e /var/lib/headfirst -o -e /etc/headfirst").returncode != 0
        assert closed.nodes.run(node, "dpkg-query --show docker.io").returncode != 0


def test_a_plan_of_another_engine_is_refused(closed: Closed) -> None:
    done = closed.deploy(f"plan /srv/headfirst/closed.ini {BUNDLE} -e engine_version=0.5.22")
    assert done.returncode == 3 and "sglang 0.5.22, and the bundle has sglang" in done.stderr, done.stderr
    assert "deploy bundle /srv/headfirst/closed.ini" in done.stderr


def test_from_bare_to_an_answer(closed: Closed) -> None:
    before = [closed.output(node, APT_STATE) for node in (1, 2)]
    done = closed.deploy(UP, "--plain")
    print(done.stdout)
    assert done.returncode == 0 and "The service is up." in done.stdout, done.stdout[-4000:] + done.stderr
    asked = closed.deploy(f"chat /srv/headfirst/closed.ini '{QUESTION}'")
    assert demo.answers()[QUESTION] in " ".join(asked.stdout.split()), asked.stdout + asked.stderr
    # Files of the roles' own may have come with packages; what apt reads has not changed.
    assert [closed.output(node, APT_STATE) for node in (1, 2)] == before


def test_what_is_on_the_hosts_is_roots(closed: Closed) -> None:
    folder = "/var/lib/headfirst/bundle"
    assert closed.output(1, f"stat -c '%a %U' {folder}") == "755 root"
    # apt gives the folder of its unfinished lists to a user of its own.
    of_others = f"find {folder} -not -path '*/lists/*' '(' -perm /022 -o -not -user root ')'"
    assert closed.output(1, of_others) == ""


def test_a_second_run_changes_nothing_with_the_bundle_in_the_inventory(closed: Closed) -> None:
    named = "-e bundle=/srv/headfirst/cluster.tar -e bundle_signers=/srv/headfirst/signers"
    done = closed.deploy(f"up /srv/headfirst/closed.ini {named}", "--json")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["changed"] == 0
