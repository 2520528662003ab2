"""Proxies to the outside: what an inventory may write, what the plan makes of it, where a login goes."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.headfirst.serving.plugins.modules import apt_key_file
from headfirst.collection import collection_root
from headfirst.common.errors import InputError
from headfirst.control.cli.shown.plan import print_plan
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.prepare import Prepared, prepare
from headfirst.control.deployment.running.artifacts import Artifacts
from headfirst.control.deployment.running.phases import of_up
from headfirst.control.deployment.running.role_vars import HostVars
from headfirst.control.deployment.running.role_vars.outbound import FOLDER, outbound_vars
from headfirst.decide.scrub import Scrubber, url_credentials
from serving import QuietHandler, serving

pytestmark = pytest.mark.usefixtures("no_hub")

PASSWORD = "p@ss w/ord%41"
QUOTED = "me:p%40ss%20w%2Ford%2541@"
PROXY = "http://proxy.example.org:3128"
HOSTS = """\
[head]
n1 ansible_host=192.0.2.1 address=10.0.0.1
[workers]
n2 ansible_host=192.0.2.2 address=10.0.0.2 weights_addresses=10.1.0.2
[monitoring]
n3 ansible_host=n3.example.org address=10.0.0.3
[head:vars]
weights_addresses=10.1.0.1
[all:vars]
gpus=8
gpu=H100-80G
nic=eth0
hca=none
model=Qwen/Qwen3-32B
model_source=huggingface
"""


def prepared(folder: Path, *lines: str, more: str = "") -> Prepared:
    """The plan of HOSTS with these lines under [all:vars]."""
    (folder / "x.ini").write_text(HOSTS + "\n".join(lines) + "\n" + more)
    return prepare([folder / "x.ini"], [], probe=False)


def login(folder: Path, text: str = f"me:{PASSWORD}\n", mode: int = 0o600) -> str:
    (folder / "login").write_text(text)
    (folder / "login").chmod(mode)
    return "http_proxy_login_file=login"


def variables(own: Prepared) -> HostVars:
    """The variables of all phases of `up`."""
    files = Artifacts(Path("wheel"))
    phases = of_up(own.cluster, own.plan, Secrets().with_keys([None]), files)
    found: HostVars = {}
    for phase in phases:
        for host, values in phase.variables.items():
            found.setdefault(host, {}).update(values)
    return found


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("http_proxy=http://me:secret@proxy:3128", "http_proxy_login_file"),
        ("https_proxy=http://token@proxy:3128", "http_proxy_login_file"),
        ("http_proxy=proxy:3128", "http://HOST:PORT"),
        ("http_proxy=http://proxy", "http://HOST:PORT"),
        ("http_proxy=http://proxy:99999", "http://HOST:PORT"),
        ("http_proxy=socks5://proxy:1080", "http://HOST:PORT"),
        ('http_proxy="http://proxy:1/\\u0007"', "http://HOST:PORT"),
        ("no_proxy=*.example.org", "no * and no port"),
        ("no_proxy=a.example.org:80", "no * and no port"),
        ("registry_mirrors=docker.io=mirror.example.org", "(ghcr|nvcr)"),
        ("registry_mirrors=ghcr.io=https://mirror.example.org", "should match pattern"),
        ("registry_mirrors=chine", "NAME=VALUE"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(InputError) as refused:
        prepared(tmp_path, line)
    assert why in refused.value.what
    assert refused.value.where and refused.value.where.startswith(str(tmp_path))
    assert "secret" not in str(refused.value) and "token" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "mode"), [("me\n", 0o600), ("me:\n", 0o600), ("me:a\nb", 0o600), ("me:a", 0o644)]
)
def test_a_login_that_is_none_is_refused(tmp_path: Path, text: str, mode: int) -> None:
    line = login(tmp_path, text, mode)
    with pytest.raises(InputError, match=r"USER:PASSWORD|others can read") as refused:
        prepared(tmp_path, f"http_proxy={PROXY}", line)
    assert refused.value.where == str(tmp_path / "login")


def test_everything_of_the_cluster_is_reached_directly(tmp_path: Path) -> None:
    plan = prepared(tmp_path, f"http_proxy={PROXY}/", "no_proxy=.example.com,192.0.2.99", "proxy=true").plan
    assert [each.host for each in plan.outbound] == ["n1", "n2", "n3"]
    for each in plan.outbound:
        assert (each.http_proxy, each.https_proxy, each.has_login) == (PROXY, PROXY, False)
        assert each.no_proxy[:5] == [".example.com", "192.0.2.99", "localhost", "127.0.0.1", "::1"]
        assert {"10.0.0.1", "10.1.0.1", "192.0.2.1", "n1", "10.0.0.2", "10.1.0.2"} <= set(each.no_proxy)
        assert {"10.0.0.3", "n3.example.org", "n3"} <= set(each.no_proxy)


def test_one_proxy_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(prepared(tmp_path, f"http_proxy={PROXY}").plan)
    assert f"outgoing requests through {PROXY}; directly:" in " ".join(capsys.readouterr().out.split())


def test_a_host_has_its_own_proxy_or_none(tmp_path: Path) -> None:
    own = "[workers:vars]\nhttp_proxy=http://other:8080\n[monitoring:vars]\nhttp_proxy=\n"
    plan = prepared(tmp_path, f"http_proxy={PROXY}", "https_proxy=http://tls:1", more=own).plan
    assert [(each.host, each.http_proxy, each.https_proxy) for each in plan.outbound] == [
        ("n1", PROXY, "http://tls:1"),
        ("n2", "http://other:8080", "http://tls:1"),
        ("n3", None, "http://tls:1"),
    ]
    plan = prepared(tmp_path, f"http_proxy={PROXY}", more="[monitoring:vars]\nhttp_proxy=\n").plan
    assert [each.host for each in plan.outbound] == ["n1", "n2"]


def test_without_a_proxy_there_is_nothing_of_it(tmp_path: Path) -> None:
    own = prepared(tmp_path, "no_proxy=.example.com")
    assert "outbound" not in own.plan.model_dump(mode="json")
    assert [note for note in own.plan.notes if "no_proxy has no effect without http_proxy" in note]
    names = {name for values in variables(own).values() for name in values}
    assert not [name for name in names if name.endswith("_proxy") or name == "headfirst_environment"]


def test_networks_are_noted(tmp_path: Path) -> None:
    plan = prepared(tmp_path, f"http_proxy={PROXY}", "no_proxy=10.0.0.0/8,.example.com").plan
    assert [note for note in plan.notes if note.startswith("no_proxy=10.0.0.0/8: ")]


def test_where_a_proxy_goes(tmp_path: Path) -> None:
    own = prepared(tmp_path, f"http_proxy={PROXY}", "weights_fetch=head")
    found, exceptions = variables(own), ",".join(own.plan.outbound[0].no_proxy)
    environment = {"http_proxy": PROXY, "https_proxy": PROXY, "no_proxy": exceptions}
    for host in ("n1", "n2", "n3"):
        assert found[host]["headfirst_environment"] == environment
        assert found[host]["docker_engine_https_proxy"] == PROXY
        assert found[host]["docker_engine_no_proxy"] == exceptions
        assert found[host]["headfirst_outbound_files"] == {}
    assert environment.items() <= found["n1"]["weights_environment"].items()
    assert not environment.keys() & found["n2"]["weights_environment"].keys()
    assert environment.items() <= found["n1"]["open_webui_container"]["environment"].items()
    # Ranks, routers and monitoring ask hosts of the cluster alone.
    assert own.plan.webui
    for container in own.plan.containers:
        assert ("http_proxy" in container.environment) == (container.name == own.plan.webui.container.name)


def test_podman_has_variables_of_its_own(tmp_path: Path) -> None:
    own = prepared(tmp_path, f"http_proxy={PROXY}", "container_runtime=podman")
    assert variables(own)["n2"]["podman_engine_http_proxy"] == PROXY
    assert "docker_engine_http_proxy" not in variables(own)["n2"]


def test_a_login_is_in_what_is_secret_alone(tmp_path: Path) -> None:
    own = prepared(tmp_path, f"http_proxy={PROXY}", login(tmp_path), "weights_fetch=head")
    url = PROXY.replace("//", f"//{QUOTED}")
    values = variables(own)["n1"]
    for secret in ("docker_engine_http_proxy", "docker_engine_https_proxy"):
        assert values.pop(secret) == url
    assert values.pop("weights_environment")["https_proxy"] == url
    assert values.pop("open_webui_secret_env") == {"http_proxy": url, "https_proxy": url}
    files = values.pop("headfirst_outbound_files")
    assert files["apt.conf"] == f'Acquire::http::Proxy "{url}";\nAcquire::https::Proxy "{url}";\n'
    assert values["headfirst_environment"] == {
        "APT_CONFIG": f"{FOLDER}/apt.conf",
        "HEADFIRST_ENVIRONMENT_FILE": f"{FOLDER}/environment",
        "no_proxy": ",".join(own.plan.outbound[0].no_proxy),
    }
    assert "no_proxy" in values["open_webui_container"]["environment"]
    shown = [json.dumps(values), own.plan.model_dump_json(), repr(own.cluster), repr(own.plan)]
    assert not [text for text in shown if PASSWORD in text or QUOTED in text or url in text]
    # What a run may print of it is masked.
    scrubber = Scrubber([*own.cluster.hidden, *url_credentials(outbound_vars(own.cluster))])
    for text in (PASSWORD, url, json.dumps(files), f"x {QUOTED.removeprefix('me:')[:-1]} y"):
        assert "ord" not in scrubber.text(text)


def test_the_file_is_for_a_shell(tmp_path: Path) -> None:
    own = prepared(tmp_path, f"http_proxy={PROXY}", login(tmp_path, "me:a'$(id)`\"\\ é\n"))
    [content] = {
        values["headfirst_outbound_files"]["environment"] for values in outbound_vars(own.cluster).values()
    }
    (tmp_path / "environment").write_text(content)
    wrapper = yaml.safe_load((collection_root() / "roles/node_tools/vars/main/main.yml").read_text())
    argv = [*wrapper["__node_tools_with_environment_file"], "env"]
    environment = {"HEADFIRST_ENVIRONMENT_FILE": str(tmp_path / "environment"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    assert f"http_proxy=http://me:a%27%24%28id%29%60%22%5C%20%C3%A9@{PROXY[7:]}" in done.stdout.splitlines()
    # Without the file the program runs as it is.
    assert subprocess.run(argv, env={"PATH": "/usr/bin:/bin"}, check=False).returncode == 0


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("docker_engine_https_proxy=http://x:1", "https_proxy"),
        ("docker_engine_no_proxy=x", "no_proxy"),
        ("weights_environment={}", "http_proxy"),
    ],
)
def test_variables_of_roles_name_the_setting(tmp_path: Path, line: str, instead: str) -> None:
    with pytest.raises(InputError, match="decided by the plan") as refused:
        prepared(tmp_path, f"http_proxy={PROXY}", more=f"[head:vars]\n{line}\n")
    assert f"Write {instead} " in (refused.value.hint or "")


def test_mirrors_of_the_plans_own_images(tmp_path: Path) -> None:
    def images(*lines: str) -> set[str]:
        return {container.image.partition(":")[0] for container in prepared(tmp_path, *lines).plan.containers}

    page, exporter = "open-webui/open-webui", "nvidia/k8s/dcgm-exporter"
    assert {f"ghcr.io/{page}", f"nvcr.io/{exporter}"} <= images()
    assert {f"ghcr.nju.edu.cn/{page}", f"nvcr.m.daocloud.io/{exporter}"} <= images("registry_mirrors=china")
    own = images("registry_mirrors=ghcr.io=harbor.example.org:8443/ghcr")
    # No mirror replaces what the inventory names.
    assert {f"nvcr.io/{exporter}", "lmsysorg/sglang"} <= own
    named = images("registry_mirrors=china", "webui_image=ghcr.io/open-webui/open-webui:v0.12.4")
    assert f"ghcr.io/{page}" in named


@contextmanager
def proxy() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A proxy that answers everything with a key; its address, and URL and login of each request."""
    seen: list[tuple[str, str]] = []

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers.get("Proxy-Authorization", "")))
            self.send_response(200)
            self.end_headers()
            self.wfile.write((Path(__file__).parent / "data/apt_key/owner.asc").read_bytes())

    with serving(Handler) as url:
        yield url.removeprefix("http://"), seen


def test_a_key_is_fetched_with_the_login_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "")  # what the module sets is undone
    monkeypatch.setenv("HEADFIRST_ENVIRONMENT_FILE", str(tmp_path / "environment"))
    fingerprint = (Path(__file__).parent / "data/apt_key/owner.fingerprint").read_text().strip()
    url = "http://archive.invalid/key"
    options: dict[str, Any] = {"url": url, "fingerprint": fingerprint, "dest": str(tmp_path / "key.asc")}
    with proxy() as (address, seen):
        (tmp_path / "environment").write_text(f"http_proxy='http://{QUOTED}{address}'\n")
        with patch_module_args(options), pytest.raises(SystemExit):
            apt_key_file.main()
    assert json.loads(capsys.readouterr().out)["changed"]
    [(asked, authorization)] = seen
    assert asked == url
    assert base64.b64decode(authorization.removeprefix("Basic ")).decode() == f"me:{PASSWORD}"


def test_apt_reads_the_login_of_the_file(tmp_path: Path) -> None:
    own = prepared(tmp_path, f"http_proxy={PROXY}", login(tmp_path))
    text = outbound_vars(own.cluster)["n1"]["headfirst_outbound_files"]["apt.conf"]
    for name in ("etc", "state/lists/partial", "cache/archives/partial"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "status").touch()
    archives = ("http://archive.invalid/debian", "http://direct.invalid/debian")
    (tmp_path / "sources.list").write_text("".join(f"deb [trusted=yes] {url} ./\n" for url in archives))
    settings = {
        "Dir::Etc": tmp_path / "etc",
        "Dir::Etc::SourceList": tmp_path / "sources.list",
        "Dir::Etc::SourceParts": "-",
        "Dir::State": tmp_path / "state",
        "Dir::State::Status": tmp_path / "status",
        "Dir::Cache": tmp_path / "cache",
        "APT::Sandbox::User": "root",
        "Acquire::Retries": "0",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    with proxy() as (address, seen):
        (tmp_path / "apt.conf").write_text(text.replace(PROXY.removeprefix("http://"), address))
        (tmp_path / "apt.conf").chmod(0o600)
        environment = {
            "APT_CONFIG": str(tmp_path / "apt.conf"),
            "no_proxy": "x,direct.invalid",
            "LC_ALL": "C",
        }
        command = ["apt-get", *options, "update"]
        done = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, check=False
        )
    assert {url for url, _ in seen if url.startswith(f"{archives[0]}/./")}, done.stderr
    assert not [url for url, _ in seen if "direct.invalid" in url]
    logins = {base64.b64decode(sent.removeprefix("Basic ")).decode() for _, sent in seen}
    assert logins == {f"me:{PASSWORD}"}
    assert QUOTED not in done.stdout + done.stderr and PASSWORD not in done.stdout + done.stderr
