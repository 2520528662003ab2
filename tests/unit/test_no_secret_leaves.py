"""No secret of a cluster is in what is printed, rendered, recorded, labelled, or handed over as an argument.

Every secret of an inventory, and every generated one, is marked; each output is searched for the marks.
"""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.headfirst.serving.plugins.module_utils import container_spec
from collecting import Collector
from headfirst.common.errors import InputError
from headfirst.control.cli.app import app
from headfirst.control.credentials import secrets as stored
from headfirst.control.credentials.secrets import Secrets, hidden
from headfirst.control.deployment.certificate import with_certificate
from headfirst.control.deployment.prepare import Prepared, prepare
from headfirst.control.deployment.running.artifacts import Artifacts, Tarball
from headfirst.control.deployment.running.restarts import _canonical
from headfirst.control.deployment.running.role_vars.engine import service_version
from headfirst.control.deployment.verbs.render import RenderOptions, files_of
from headfirst.control.live.specifications import Present
from headfirst.control.run.runner import run_playbook
from headfirst.decide.plan.restarts import differences, keeping
from headfirst.decide.scrub import Scrubber, is_secret
from rendering import Programs
from run_variables import up_variables
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
MARK = "Mq7marked"
LOGIN = base64.b64encode(f"me:{MARK}-registry".encode()).decode()
MARKS = (MARK, LOGIN, "PRIVATE KEY-----")
INVENTORY = f"""\
[head]
n1 ansible_host=192.0.2.1
[workers]
n2 ansible_host=192.0.2.2
[spares]
n3 ansible_host=192.0.2.3
[all:vars]
gpus=8
gpu=H100-80G
nic=eth0
hca=none
{{service}}
ansible_password={MARK}-login
ansible_become_password={MARK}-sudo
spare_takeover=true
api_key_file=key
registry_logins=logins.json
tls=local-ca
engine_env="HF_TOKEN={MARK}-hub DEBUG=1 REDIS_URL=redis://me:{MARK}-url@h/0 MAX_TOKENS=4096"
engine_env_file=engine.env
webui_env="GOOGLE_API_KEY={MARK}-google ENABLE_API_KEYS=true TITLE=mine"
webui_env_file=webui.env
http_proxy=http://proxy.example:3128
http_proxy_login_file=proxy.login
"""
WHOLE = "model=Qwen/Qwen3-32B\nmodel_source=modelscope"
DIVIDED = f"""{WHOLE}
engine=sglang
prefill_replicas=1
decode_replicas=1
decode_engine_env=S3_SECRET={MARK}-decode
"""
# Variables of roles that carry secrets; each is hidden by the argument specification of its role.
CARRIERS = {
    *("engine_api_key", "engine_config", "engine_secret_env", "engine_standbys", "engine_supervision"),
    *("open_webui_engine_api_key", "open_webui_admin_password", "open_webui_secret_key"),
    *("open_webui_admin_password_before", "open_webui_secret_env", "router_api_key", "router_admin_key"),
    *("proxy_certificate_key", "proxy_service_api_keys", "supervisor_token", "supervisor_keys"),
    *(
        "weights_token",
        "monitoring_api_keys",
        "monitoring_grafana_password",
        "headfirst_deregister_admin_key",
        "docker_engine_http_proxy",
        "docker_engine_https_proxy",
        "headfirst_outbound_files",
        "weights_environment",
    ),
}


def write(folder: Path, service: str = WHOLE) -> Path:
    files = {
        "key": f"{MARK}-api\n",
        "proxy.login": f"me:{MARK}-proxy\n",
        "logins.json": json.dumps({"auths": {"r.example": {"auth": LOGIN}}}),
        "engine.env": f"# ours\nOWN_SETTING={MARK} own=1\n\nPLAIN={MARK}-declared\n",
        "webui.env": f"DATABASE_URL=postgres://a:{MARK}-db@h/d\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    (folder / "cluster.ini").write_text(INVENTORY.replace("{service}", service))
    return folder / "cluster.ini"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


def planned(path: Path) -> tuple[Prepared, Secrets]:
    prepared = prepare([path], [], probe=False)
    texts = {
        name: f"{MARK}-{name}"
        for name in Secrets.model_fields
        if name.endswith(("password", "_key", "token", "secret"))
    }
    secrets = with_certificate(prepared.cluster, Secrets(**texts)).secrets
    stored.save(prepared.cluster, secrets)
    return prepared, secrets


def clean(what: str, text: str) -> None:
    for mark in MARKS:
        at = text.find(mark)
        assert at < 0, f"{what}: …{text[max(0, at - 80) : at + 60]!r}"


@pytest.mark.parametrize("service", [WHOLE, DIVIDED], ids=["whole", "divided"])
def test_no_output_has_a_secret(place: Path, service: str) -> None:
    """What verbs print, render and record; a rendered file that others read has none."""
    path = write(place, service)
    prepared, secrets = planned(path)
    run = CliRunner()
    shown = run.invoke(app, ["plan", str(path), "--commands"])
    assert shown.exit_code == 0, shown.output
    names = ["HF_TOKEN=…", "OWN_SETTING=…", "REDIS_URL=…", "GOOGLE_API_KEY=…", "DATABASE_URL=…"]
    assert all(name in shown.output for name in names) and "MAX_TOKENS=4096" in shown.output
    outputs = {"plan": shown.output, "plan --json": run.invoke(app, ["plan", str(path), "--json"]).output}
    outputs["report"] = run.invoke(app, ["report", str(path), "-o", str(place / "report.html")]).output
    outputs["page"] = (place / "report.html").read_text()
    outputs["drawing"] = run.invoke(app, ["plan", str(path), "--svg", str(place / "plan.svg")]).output
    for target in ("docker-run", "compose", "slurm", "kubernetes"):
        given = ["-e", "tls=none", "-e", f"engine_env=HF_TOKEN={MARK}-typed", "-o", str(place / target)]
        done = run.invoke(app, ["render", str(path), "--to", target, *given])
        assert done.exit_code == 0, done.output
        outputs[target] = done.output + "".join(file.read_text() for file in (place / target).rglob("*.*"))
    plan = prepared.plan
    for container in ("pyxis", "apptainer", "none"):
        files = files_of(plan, "slurm", RenderOptions(slurm_container=container), "deploy render")
        outputs[container] = "".join(file.text for file in files.values())
    outputs["version"] = service_version(plan.services[0], secrets)
    outputs["settings"] = repr([its.settings for its in prepared.cluster.services]) + repr(prepared.cluster)
    for what, text in outputs.items():
        clean(what, text)
        assert text, what


def test_roles_hide_the_variables_that_carry_secrets(place: Path) -> None:
    """No specification, label or argument of a container has one, in Docker and in Podman."""
    prepared, secrets = planned(write(place))
    file = Tarball(Path("-"), on_node=False)
    variables = up_variables(
        prepared.cluster,
        prepared.plan,
        secrets,
        Artifacts(Path("-"), {container.image: file for container in prepared.plan.containers}),
    )
    options = {
        name: option
        for spec in ROOT.glob("roles/*/meta/argument_specs.yml")
        for entry in yaml.safe_load(spec.read_text())["argument_specs"].values()
        for name, option in entry.get("options", {}).items()
    }
    carriers = set()
    for given in variables.values():
        for name, value in given.items():
            if any(mark in json.dumps(value, default=str) for mark in MARKS):
                carriers.add(name)
    assert carriers <= CARRIERS, carriers - CARRIERS
    assert {"engine_secret_env", "open_webui_secret_env", "engine_standbys"} <= carriers
    # Without "path": the name of this test's folder may stand in others.
    assert not [name for name in carriers & options.keys() if not options[name].get("no_log")]
    engine = prepared.cluster.services[0].secret_env
    for container in prepared.plan.containers:
        spec = {**{key: option.get("default") for key, option in container_spec.SPEC_OPTIONS.items()}}
        spec |= container.module_spec()
        canonical = container_spec.canonical(spec, "sha256:0", dict(engine))
        labels = container_spec.labels(canonical)
        clean(f"labels of {container.name}", json.dumps(labels))
        argv = container_spec.podman_create(container.name, spec, [*engine], labels)
        clean(f"argv of {container.name}", json.dumps(argv))


def test_what_a_run_shows_has_none(place: Path) -> None:
    """The role writes the file of the container with mode 0600; -vvv and --diff print none of it."""
    prepared, secrets = planned(write(place))
    texts = dict(prepared.cluster.services[0].secret_env)
    assert {*texts.values()} <= {*hidden(prepared.cluster, secrets)}
    assert {f"{MARK}-google", *secrets.values()} <= {*hidden(prepared.cluster, secrets)}
    variables: dict[str, Any] = {
        "engine_secret_env": texts,
        "engine_config_path": str(place / "node" / "engine.yaml"),
        "ansible_connection": "local",
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    (place / "hosts.json").write_text(json.dumps({"all": {"hosts": {"n1": variables}}}))
    (place / "play.yml").write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n    - ansible.builtin.include_role:\n"
        "        {name: headfirst.serving.engine, tasks_from: environment.yml}\n"
    )
    reporter = Collector()
    result = run_playbook(
        place / "play.yml",
        [place / "hosts.json"],
        reporter=reporter,
        log_file=place / "log",
        verbosity=3,
        diff=True,
    )
    assert result.ok and result.changed
    clean("log", (place / "log").read_text())
    clean("events", repr(reporter.events))
    # What `logs` prints of a rank, and `diagnose` keeps.
    clean("log of a rank", Scrubber(hidden(prepared.cluster, secrets)).text(json.dumps(texts)))
    written = place / "node" / "engine.env"
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert container_spec.read_env_file(written.read_text()) == texts


@pytest.mark.parametrize("target", ["docker-run", "compose", "slurm", "kubernetes"])
def test_rendered_containers_get_what_a_person_writes_into_secrets(place: Path, target: Any) -> None:
    """make-secrets.sh names what it needs; the file of the container then has the values, mode 0600."""
    plan = planned(write(place))[0].plan
    for name, file in files_of(plan, target, RenderOptions(), "deploy render").items():
        (place / name).write_text(file.text)
    programs = Programs(place / "programs")
    done = programs.run("bash", place / "make-secrets.sh", cwd=place)
    assert done.returncode == 1 and "copy the file of api_key_file" in done.stderr
    folder = place / "secrets"
    (folder / "api-key").write_text("sk-0123456789\n")
    done = programs.run("bash", place / "make-secrets.sh", cwd=place)
    assert done.returncode == 1 and "write the value of HF_TOKEN to it" in done.stderr
    values = {name: f"$(id) '{name}' \"x\"" for name in ("HF_TOKEN", "OWN_SETTING", "PLAIN", "REDIS_URL")}
    for name, text in values.items():
        (folder / f"env-engine-{name}").write_text(f"{text}\n")
    for name in ("GOOGLE_API_KEY", "DATABASE_URL", "http_proxy", "https_proxy"):
        (folder / f"env-webui-{name}").write_text("page\n")
    done = programs.run("bash", place / "make-secrets.sh", cwd=place)
    assert done.returncode == 0, done.stderr
    assert container_spec.read_env_file((folder / "engine.env").read_text()) == values
    assert {stat.S_IMODE(file.stat().st_mode) & 0o077 for file in [folder, folder / "engine.env"]} == {0}
    texts = "".join(file.text for file in files_of(plan, target, RenderOptions(), "").values())
    wanted = {"docker-run": "--env-file /etc/headfirst/engine.env", "compose": "./secrets/engine.env",
              "slurm": 'done <"/etc/headfirst/engine.env"', "kubernetes": "envFrom"}  # fmt: skip
    assert wanted[target] in texts


def test_services_without_secrets_stay_as_they_are(place: Path) -> None:
    """Their containers, versions and generations have no new part, so that nothing starts again."""
    path = write(place)
    text = path.read_text()
    lines = [line for line in text.splitlines() if not line.startswith(("engine_env", "webui_env", "tls"))]
    path.write_text("\n".join([*lines, "engine_env=NCCL_DEBUG=WARN TOKENIZERS_PARALLELISM=false", ""]))
    prepared, _ = planned(path)
    for service in prepared.plan.services:
        for replica in service.replicas:
            assert "secret_env" not in replica.model_dump(mode="json")
            assert all("env_file" not in node.container.module_spec() for node in replica.nodes)
            assert all("NCCL_DEBUG" in node.container.environment for node in replica.nodes)


def test_a_secret_that_runs_in_the_environment_is_not_proposed_as_a_line(place: Path) -> None:
    """Containers of an earlier version have it in their label."""
    prepared, _ = planned(write(place))
    service = prepared.cluster.services[0]
    container = prepared.plan.services[0].replicas[0].nodes[0].container
    spec = container.module_spec()
    before = {**spec, "environment": {**spec["environment"], "HF_TOKEN": f"{MARK}-hub", "DEBUG": "2"}}
    present = Present(spec={**before, "image_id": "sha256:1"}, running=True, planned_image_id="sha256:1")
    found = differences(present.spec, _canonical(spec, present, dict(service.secret_env)))
    assert "environment HF_TOKEN" in map(str, found)
    lines = keeping(service.settings, None, found, lambda more: [*found][: 0 if more else None])
    clean("restart", repr([str(difference) for difference in found]) + repr(lines))
    assert any("DEBUG=2" in line for line in lines)


@pytest.mark.parametrize(
    ("file", "text", "mode", "reason"),
    [
        ("engine.env", f"A={MARK}\n", 0o644, "others can read or change this file"),
        ("engine.env", f"{MARK}\n", 0o600, "line 1 is not KEY=VALUE"),
        ("webui.env", f"B A={MARK}\n", 0o600, "a name has other characters"),
        ("engine.env", f"CUDA_VISIBLE_DEVICES={MARK}\n", 0o600, "the plan gives each container its GPUs"),
        ("engine.env", None, 0, "engine_env_file names no file of this machine"),
        ("cluster.ini", f"engine_env=A=1 {MARK}", 0o600, "engine_env: word 2 is not of the form"),
        ("cluster.ini", f'webui_env={{"A_KEY": "{MARK}\\n2"}}', 0o600, "A_KEY has more than one line"),
    ],
)
def test_errors_name_no_secret(place: Path, file: str, text: str | None, mode: int, reason: str) -> None:
    path = write(place)
    target = place / file
    if text is None:
        target.unlink()
    else:
        target.write_text(path.read_text() + text if file == "cluster.ini" else text)
        target.chmod(mode)
    with pytest.raises(InputError) as refused:
        prepare([path], [], probe=False)
    said = f"{refused.value.what} {refused.value.where} {refused.value.hint}"
    assert reason in said
    clean("error", said)


SECRET = ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "API_KEY_2", "MY_DBPASSWORD", "S3_CREDENTIALS",
          "OPENAI_API_KEYS", "token", "LDAP_PASS", "OTEL_EXPORTER_OTLP_HEADERS", "private-key",
          "DB_PWD"]  # fmt: skip
PLAIN = [
    "TOKENIZERS_PARALLELISM",
    "TIKTOKEN_CACHE_DIR",
    "NCCL_IB_HCA",
    "PWD",
    "PASSTHROUGH",
    "KEYBOARD",
    "MONKEY",
]


def test_which_variables_are_secrets() -> None:
    assert [name for name in SECRET if not is_secret(name, "aZ81-text")] == []
    assert [name for name in PLAIN if is_secret(name, "aZ81-text")] == []
    plain = {
        "MAX_TOKENS": "4096",
        "ENABLE_API_KEYS": "True",
        "VLLM_X_TOKEN_THRESHOLD": "0.25",
        "A_TOKENS": "1, 2",
    }
    assert not [name for name, value in plain.items() if is_secret(name, value)]
    values = ["sk-abc", "hf_abcdef", "https://u:p4ss@h", "Bearer x", "-----BEGIN PRIVATE KEY-----"]
    assert all(is_secret("SETTING", value) for value in values) and is_secret("PASSWORD", "12345678")
