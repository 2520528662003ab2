"""The scripts start what the plan has, word for word: they run, with a program that records its arguments."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.decide.containers.spec import docker_run as line_of
from headfirst.decide.plan.types import Plan
from headfirst.decide.render import docker_run
from rendering import HEADER, ODD, Programs, model_in, planned, put, with_words


def prepared(folder: Path, plan: Plan, program: str = "docker") -> Programs:
    """The rendered files in `folder`, their secrets, the model, and recorded programs."""
    put(docker_run.files(plan, HEADER, program), folder)
    model_in(folder, plan)
    programs = Programs(folder / "programs")
    # No container is there yet.
    programs.record(program, '[ "$1 $2" != "container inspect" ]\n')
    programs.record("install")
    assert programs.run(folder / "make-secrets.sh", cwd=folder).returncode == 0
    return programs


def lab(folder: Path) -> Plan:
    return planned("lab.ini", f"weights_dir={folder}/models", f"webui_data_dir={folder}/webui")


def runs(programs: Programs, program: str = "docker") -> list[list[str]]:
    return [words for words, _ in programs.records(program) if words[0] == "run"]


@pytest.mark.parametrize("program", ["docker", "nerdctl"])
def test_every_host_starts_its_containers(tmp_path: Path, program: str) -> None:
    plan = with_words(lab(tmp_path), ODD)
    programs = prepared(tmp_path, plan, program)
    for script in ("1-node1.sh", "2-node2.sh"):
        done = programs.run(tmp_path / script, cwd=Path("/"))
        assert done.returncode == 0, done.stderr
    head, worker = plan.services[0].replicas[0].nodes
    assert plan.webui
    expected = [head.container.without_files(), plan.webui.container, worker.container]
    assert runs(programs, program) == [line_of(container, program)[1:] for container in expected]


def test_the_secrets_are_installed_for_root_alone(tmp_path: Path) -> None:
    programs = prepared(tmp_path, lab(tmp_path))
    programs.run(tmp_path / "1-node1.sh", cwd=tmp_path)
    assert [words for words, _ in programs.records("install")] == [
        ["-D", "-m", "0600", "secrets/engine.yaml", "/etc/headfirst/engine.yaml"],
        ["-D", "-m", "0600", "secrets/webui.env", "/etc/headfirst/webui.env"],
        ["-d", "-m", "0700", str(tmp_path / "webui")],
    ]


def test_routers_know_their_replicas(tmp_path: Path) -> None:
    plan = planned("h100x2-services.ini", f"weights_dir={tmp_path}", f"webui_data_dir={tmp_path}/webui")
    programs = prepared(tmp_path, plan)
    assert programs.run(tmp_path / "1-node01.sh", cwd=tmp_path).returncode == 0
    (router,) = [words for words in runs(programs) if "headfirst-router-chat" in words]
    urls = [replica.engine_url for replica in plan.services[0].replicas]
    assert router[-4:] == ["--worker-urls", *urls]


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("models/headfirst-demo-bf16/config.json", "has no config.json"),
        ("models/headfirst-demo-bf16/model-2.safetensors", "lacks model-2.safetensors"),
        ("secrets/engine.yaml", "./make-secrets.sh"),
    ],
)
def test_nothing_starts_where_a_file_is_missing(tmp_path: Path, missing: str, message: str) -> None:
    programs = prepared(tmp_path, lab(tmp_path))
    (tmp_path / missing).unlink()
    done = programs.run(tmp_path / "1-node1.sh", cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
    assert runs(programs) == []
    assert programs.records("install") == []


def test_a_container_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    programs = prepared(tmp_path, lab(tmp_path))
    programs.record("docker")
    done = programs.run(tmp_path / "1-node1.sh", cwd=tmp_path)
    assert done.returncode == 1
    assert "There is a container headfirst-engine already" in done.stderr
    assert runs(programs) == []


def test_down_stops_rank_0_first_and_removes(tmp_path: Path) -> None:
    programs = prepared(tmp_path, lab(tmp_path))
    assert programs.run(tmp_path / "1-node1.sh", "down", cwd=tmp_path).returncode == 0
    assert [words for words, _ in programs.records("docker")] == [
        ["stop", "--time", "60", "headfirst-engine"],
        ["rm", "--force", "headfirst-engine"],
        ["stop", "--time", "60", "headfirst-webui"],
        ["rm", "--force", "headfirst-webui"],
    ]
    assert programs.run(tmp_path / "1-node1.sh", "sideways", cwd=tmp_path).returncode == 1


def test_the_script_that_asks_hides_the_key(tmp_path: Path) -> None:
    plan = lab(tmp_path)
    programs = prepared(tmp_path, plan)
    programs.record("curl", "cat\n")
    done = programs.run(tmp_path / "ask.sh", cwd=tmp_path)
    key = (tmp_path / "secrets" / "api-key").read_text().strip()
    assert done.stdout == f"Authorization: Bearer {key}\n"  # what curl read as a header
    ((words, environment),) = programs.records("curl")
    assert key not in " ".join([*words, *environment.values()])
    assert words[-1] == plan.services[0].urls[0] + plan.services[0].readiness.probe_path
