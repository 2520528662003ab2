"""A key of `api_key_file` in use: every part has it, a change is reported, its origin is printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from collecting import Warnings
from headfirst.common.errors import InputError
from headfirst.control.cli.access import credentials as print_credentials
from headfirst.control.cli.verb import OutputFormat
from headfirst.control.credentials import secrets
from headfirst.control.credentials.secrets import credentials_file
from headfirst.control.deployment import api_keys
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.artifacts import Artifacts
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.phases import of_up
from headfirst.control.deployment.verbs import up as verb
from headfirst.control.inventory.inventory import load
from headfirst.decide.plan.types import Plan
from headfirst.decide.render import secret_files
from host_records import HostRecords
from rendering import HEADER, Programs
from test_api_key_file import KEY, OTHER, TWO, inventory, key_file
from test_rotation import DONE, QUIET, Site, fail


def test_a_plan_requires_the_file_and_has_no_key(tmp_path: Path) -> None:
    path = inventory(tmp_path, TWO)
    with pytest.raises(InputError, match="names no file"):
        prepare([path], [], probe=False)
    key_file(tmp_path / "keys" / "chat")
    plan = prepare([path], [], probe=False).plan
    assert [service.api_key_file for service in plan.services] == ["keys/chat", None]
    document = plan.model_dump_json()
    assert KEY not in document and document.count("api_key_file") == 1
    notes = prepare([path], ["proxy=true"], probe=False).plan.services[0].notes
    assert [note for note in notes if "The proxy accepts" in note]


def test_it_is_the_key_of_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    key_file(tmp_path / "keys" / "chat")
    text = TWO.replace(
        "[embedding]", "n3 ansible_host=192.0.2.9 cpu_cores=0-3\n[router]\nn1\n[monitoring]\nn1\n[embedding]"
    )
    text = text.replace("api_key_file", "replicas=2\napi_key_file")
    prepared = prepare([inventory(tmp_path, f"{text}proxy=true\n")], [], probe=False)
    cluster = prepared.cluster
    keys = api_keys.read(cluster)
    used = api_keys.applied(secrets.Secrets(), keys, None, ())
    used = verb._complete(cluster, used, QUIET, rotates=False).secrets
    files = Artifacts(tmp_path / "wheel")
    phases = of_up(cluster, prepared.plan, used, files)
    pairs = [pair for phase in phases for pair in phase.variables.get("n1", {}).items()]
    assert {name for name, value in pairs if KEY in json.dumps(value)} == {
        "engine_api_key",
        "engine_config",
        "router_api_key",
        "open_webui_engine_api_key",
        "proxy_service_api_keys",
    }
    assert KEY in used.values()  # masked in the log
    assert used.api_key("embedding") != KEY


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    key_file(tmp_path / "key")
    return Site(tmp_path, monkeypatch, "api_key_file=key\n")


def up(site: Site, **fields: Any) -> tuple[secrets.Secrets, list[str]]:
    notices = Warnings()
    verb.up(RunOptions(site.options.inventories, **fields), notices)
    return site.on_head(), notices.texts


def test_up_uses_the_key_and_keeps_it(site: Site) -> None:
    used, texts = up(site)
    assert used.engine_api_key == KEY
    assert texts == []
    assert secrets.existing(site.cluster) == used
    assert up(site) == (used, [])


def test_another_key_in_the_file_is_reported_and_used(site: Site, tmp_path: Path) -> None:
    before, _ = up(site)
    key_file(tmp_path / "key", OTHER)
    for tags in (("image",), ("host", "webui"), ("proxy",)):
        kept, [text] = up(site, tags=tags)
        assert kept == before
        assert "this run does not apply it" in text and "deploy up" in text
    after, [text] = up(site)
    assert after == before.model_copy(update={"engine_api_key": OTHER})
    assert f"{tmp_path}/key" in text and "restart" in text
    assert KEY not in text and OTHER not in text
    key_file(tmp_path / "key")
    assert up(site, tags=("engine",))[0].engine_api_key == KEY


def test_check_mode_reports_another_key_and_keeps_none(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, _ = up(site)
    key_file(tmp_path / "key", OTHER)
    ran: list[secrets.Secrets] = []
    monkeypatch.setattr(verb, "run_phases", lambda given, *_, **__: ran.append(given) or DONE)
    after, [text] = up(site, check=True)
    assert after == before and secrets.existing(site.cluster) == before
    assert [given.engine_api_key for given in ran] == [OTHER]
    assert "restart" in text
    [note] = api_keys.notes(site.cluster)
    assert "restart" in note and OTHER not in note and KEY not in note


@pytest.mark.parametrize("check", [True, False])
def test_a_controller_without_credentials_reports_another_key_than_the_clusters(
    site: Site, tmp_path: Path, check: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    [note] = api_keys.notes(site.cluster)  # before the cluster is there, too
    assert "has no credentials of the cluster" in note and "deploy up" in note and "--check" in note
    up(site)
    credentials_file(site.cluster).unlink()
    key_file(tmp_path / "key", OTHER)
    assert api_keys.notes(site.cluster) == [note]
    if check:  # which holds no lock
        monkeypatch.setattr(verb, "run_phases", lambda *_, **__: DONE)
    _, [text] = up(site, check=check)
    assert "clients with the present one get 401" in text
    assert (
        f"Without api_key_file the present key stays; `deploy credentials {site.cluster.inventories[0]}`"
        in text
    )
    assert KEY not in text and OTHER not in text


def test_a_file_that_is_gone_ends_the_run_before_a_change(site: Site, tmp_path: Path) -> None:
    (tmp_path / "key").unlink()
    with pytest.raises(InputError, match="names no file"):
        up(site)
    assert site.hosts.record("a") is None and site.runs == []


def test_a_run_of_one_service_leaves_the_key_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    key_file(tmp_path / "keys" / "chat")
    cluster = load([inventory(tmp_path, TWO)])
    chat, embedding = cluster.services
    keys = api_keys.read(cluster)
    # A service that has no key yet gets that of its file, whatever the run brings.
    new = api_keys.applied(secrets.Secrets(), keys, embedding, ())
    assert new.api_key("chat") == KEY
    other = {"chat": OTHER}
    assert api_keys.applied(new, other, embedding, ()) is new
    assert api_keys.applied(new, other, chat, ()).api_key("chat") == OTHER
    assert api_keys.applied(new, other, None, ("serve",)).api_key("chat") == OTHER
    assert api_keys.applied(new, keys, None, ()) is new


def test_a_rotation_requires_another_key_in_the_file(site: Site, tmp_path: Path) -> None:
    before, _ = up(site)
    with pytest.raises(InputError, match="api_key_file") as caught:
        site.rotate()
    assert site.on_head() == before and len(site.runs) == 1
    assert f"Write another key into {tmp_path}/key" in str(caught.value.hint)
    key_file(tmp_path / "key", OTHER)
    site.before_it_ends = fail
    with pytest.raises(Exception, match="a stage failed"):
        site.rotate()
    site.before_it_ends = lambda: None
    after = site.rotate()  # goes on, with the same file
    assert after.engine_api_key == OTHER
    assert after.webui_admin_password != before.webui_admin_password


@pytest.mark.parametrize("as_json", [False, True])
def test_credentials_print_where_a_key_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    HostRecords(tmp_path / "hosts", monkeypatch)
    path, file = inventory(tmp_path, TWO), tmp_path / "keys" / "chat"
    kept = secrets.Secrets(service_api_keys={"chat": KEY}).with_keys(["embedding"])
    secrets.save(load([path]), kept)

    def shown(service: str | None = None) -> str:
        print_credentials(RunOptions([path], service=service), OutputFormat(as_json))
        return capsys.readouterr().out

    for content, words in (
        (KEY, ""),
        (OTHER, "has another key, until: deploy up"),
        ("", "cannot be used here"),
    ):
        key_file(file, content)
        whole, single, generated = shown(), shown("chat"), shown("embedding")
        assert "api_key_file" not in generated
        assert KEY in whole and KEY in single and OTHER not in whole + single
        if as_json:
            assert json.loads(whole)["api_key_files"] == {"chat": str(file)}
            assert json.loads(single)["api_key_file"] == str(file)
        else:
            assert whole.count("api_key_file") == single.count("api_key_file") == 1
            assert str(file) in single and words in single


def render_secrets(plan: Plan, folder: Path) -> Any:
    script = folder / secret_files.SCRIPT
    files = secret_files.scheduled(plan)
    script.write_text(secret_files.make_script(HEADER, plan, files))
    return Programs(folder / "programs").run("bash", script, cwd=folder)


def test_a_rendered_script_makes_no_other_key(tmp_path: Path) -> None:
    key_file(tmp_path / "keys" / "chat")
    plan = prepare([inventory(tmp_path, TWO)], [], probe=False).plan
    folder = tmp_path / "out"
    folder.mkdir()
    done = render_secrets(plan, folder)
    assert done.returncode == 1
    assert "secrets/api-key-chat" in done.stderr and "api_key_file=keys/chat" in done.stderr
    assert not (folder / "secrets" / "engine-chat.yaml").exists()
    (folder / "secrets" / "api-key-chat").write_text(f"{KEY}\n")
    (folder / "programs").rename(folder / "before")
    assert render_secrets(plan, folder).returncode == 0
    assert (folder / "secrets" / "engine-chat.yaml").read_text().startswith(f'api-key: "{KEY}"\n')
    assert (folder / "secrets" / "api-key-embedding").read_text().startswith("sk-")
    assert KEY not in (folder / secret_files.SCRIPT).read_text()
