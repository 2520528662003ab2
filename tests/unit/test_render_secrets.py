"""make-secrets.sh: the same files as the roles write, private, and the same secrets at the second run."""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from headfirst.decide import engines
from headfirst.decide.plan.types import Plan
from headfirst.decide.render import host_parts, secret_files
from rendering import HEADER, ROOT, Programs, planned, values

TWO_REPLICAS = "h100x2-services.ini"


def make(plan: Plan, folder: Path) -> dict[str, str]:
    """Run the script; what is in secrets/."""
    script = folder / secret_files.SCRIPT
    script.write_text(secret_files.make_script(HEADER, plan, host_parts.secrets(host_parts.hosts(plan))))
    done = Programs(folder / "programs").run("bash", script, cwd=folder.parent)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return {path.name: path.read_text() for path in sorted((folder / "secrets").iterdir())}


def role_file(role: str, template: str, variables: dict[str, Any]) -> dict[str, str]:
    """The env file that a role writes with these variables."""
    loader = DataLoader()
    folder = ROOT / "roles" / role
    own = loader.load_from_file(str(folder / "vars" / "main.yml"), trusted_as_template=True)
    lines = (folder / "templates" / template).read_text().split("\n", 1)[1]  # without ansible_managed
    text = Templar(loader, variables={**own, **variables}).template(trust_as_template(lines))
    return values(text.strip())


def test_the_files_are_private_and_the_second_run_keeps_the_secrets(tmp_path: Path) -> None:
    once = make(planned("lab.ini"), tmp_path)
    folder = tmp_path / "secrets"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    (tmp_path / "programs").rename(tmp_path / "old")
    assert make(planned("lab.ini"), tmp_path) == once


def test_two_runs_make_different_secrets(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        found.append(make(planned("lab.ini"), tmp_path / name))
    assert all(found[0][name] != found[1][name] for name in found[0])


def test_the_engines_file_is_that_of_the_role(tmp_path: Path) -> None:
    plan = planned("lab.ini")
    made = make(plan, tmp_path)
    key = made["api-key"].strip()
    assert re.fullmatch(r"sk-[0-9a-f]{48}", key)
    service = plan.services[0]
    engine = engines.get(service.engine, service.engine_version)
    admin_key = made["engine-admin-key"].strip()
    assert re.fullmatch(r"[0-9a-f]{48}", admin_key)
    assert yaml.safe_load(made["engine.yaml"]) == engine.config_file(api_key=key, admin_key=admin_key)


def test_the_pages_file_is_that_of_the_role(tmp_path: Path) -> None:
    made = make(planned("lab.ini"), tmp_path)
    variables = {
        "open_webui_engine_api_key": made["api-key"].strip(),
        "open_webui_admin_email": "admin@headfirst.local",
        "open_webui_admin_password": made["webui-admin-password"].strip(),
        "open_webui_secret_key": made["webui-secret-key"].strip(),
        "open_webui_secret_env": {},
    }
    assert values(made["webui.env"]) == role_file("open_webui", "webui.env.j2", variables)


def test_replicas_and_routers_of_a_service_share_its_key(tmp_path: Path) -> None:
    made = make(planned(TWO_REPLICAS), tmp_path)
    variables = {
        "router_name": "headfirst-router-chat",
        "router_api_key": made["api-key-chat"].strip(),
        "router_admin_key": made["router-key"].strip(),
    }
    assert values(made["router-chat.env"]) == role_file("router", "router.env.j2", variables)
    files = [name for name in made if re.fullmatch(r"engine-chat(-\d)?\.yaml", name)]
    assert len(files) == 3
    keys = [yaml.safe_load(made[name])["api-key"] for name in files]
    assert set(keys) == {made["api-key-chat"].strip()}
    assert made["api-key-chat"] != made["api-key-embedding"]


@pytest.mark.parametrize(
    "given", ["sk-my.own_key~1", "01234567", "short", "sk-with space", "sk-two\nlines-here", "sk-'quote'"]
)
def test_a_secret_of_the_person_is_used_or_refused(tmp_path: Path, given: str) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "api-key").write_text(f"{given}\n")
    plan = planned("lab.ini")
    script = tmp_path / secret_files.SCRIPT
    script.write_text(secret_files.make_script(HEADER, plan, secret_files.scheduled(plan)))
    done = Programs(tmp_path / "programs").run("bash", script, cwd=tmp_path)
    if given in ("sk-my.own_key~1", "01234567"):
        assert yaml.safe_load((tmp_path / "secrets" / "engine.yaml").read_text())["api-key"] == given
    else:
        assert done.returncode == 1
        assert "secrets/api-key must have" in done.stderr
        assert not (tmp_path / "secrets" / "engine.yaml").exists()


def names(files: Sequence[secret_files.SecretFile]) -> list[str]:
    return [file.name for file in files]


def test_a_worker_gets_no_secret() -> None:
    head, worker = host_parts.hosts(planned("h100x2.ini"))
    assert names(host_parts.secrets([head])) == ["engine.yaml", "webui.env"]
    assert host_parts.secrets([worker]) == []
