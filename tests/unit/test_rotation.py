"""`deploy credentials --rotate`: what changes in which order, and how an interrupted one goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from headfirst.collection import collection_root
from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.control.credentials import secrets
from headfirst.control.deployment.asked_images import Answered
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.artifacts import Artifacts
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.phases import of_up
from headfirst.control.deployment.verbs import credentials, up_stages
from headfirst.control.deployment.verbs import up as verb
from headfirst.control.inventory.inventory import load
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.control.run.result import RunResult
from headfirst.decide.cluster.types import Cluster
from host_records import HostRecords

QUIET = QuietReporter()
CREDENTIALS = "/etc/headfirst/credentials.json"
DONE = RunResult(
    ok=True,
    cancelled=False,
    changed={},
    failed=[],
    unreachable=[],
    findings=[],
    stages=[],
    seconds=1.0,
    log_file=Path("log"),
)


class Site:
    """A cluster whose stages are recorded instead of run."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, settings: str = "") -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        self.hosts = HostRecords(folder / "hosts", monkeypatch)
        path = folder / "prod.ini"
        path.write_text(
            "[head]\na ansible_host=192.0.2.1\n[workers]\nb ansible_host=192.0.2.2\n"
            f"[all:vars]\nengine_device=cpu\nmodel_source=demo\n{settings}"
        )
        self.cluster: Cluster = load([path])
        self.options = RunOptions([path])
        self.runs: list[tuple[tuple[str, ...], secrets.Secrets]] = []
        self.before_it_ends: Callable[[], None] = lambda: None
        weights = SimpleNamespace(source="demo")
        service = SimpleNamespace(name=None, unfit=None, weights=weights, companions=[])
        plan = SimpleNamespace(services=[service], outbound=[])
        plan.model_copy = lambda **_: plan
        prepared: Any = SimpleNamespace(cluster=self.cluster, plan=plan, bundle=None)
        monkeypatch.setattr(verb, "prepare", lambda *_, **__: prepared)
        monkeypatch.setattr(verb, "_prepare_here", lambda *_, **__: ({}, []))
        monkeypatch.setattr(verb, "recorded", lambda *given: nullcontext(given[3]))
        monkeypatch.setattr(verb.artifacts, "collect", lambda *_: None)
        monkeypatch.setattr(verb.devices, "comes_first", lambda *_: False)
        monkeypatch.setattr(verb, "announced", lambda *_: [])
        monkeypatch.setattr(verb, "of_up", lambda cluster, plan, secrets, files, service: secrets)
        monkeypatch.setattr(verb, "run_phases", self.run_phases)
        monkeypatch.setattr(up_stages, "answered", lambda prepared, *_: Answered(prepared, [], [], []))
        monkeypatch.setattr(up_stages, "in_up", lambda *_: [])
        monkeypatch.setattr(verb, "_measured", lambda *_: {})

    def run_phases(
        self,
        variables: Any,
        options: RunOptions,
        cluster: Cluster,
        reporter: Any,
        *,
        secrets: list[str],
        sources: Any,
        lease: Any = None,
    ) -> RunResult:
        assert all(value in secrets for value in variables.values())  # masked in the log
        assert all(self.hosts.record(host, "/run/headfirst/lock.json") for host in "ab")
        assert self.on_head() == variables
        self.runs.append((tuple(options.tags), variables))
        self.before_it_ends()
        return DONE

    def on_head(self) -> secrets.Secrets:
        return secrets.Secrets.model_validate(self.hosts.record("a", CREDENTIALS))

    def up(self, **fields: Any) -> secrets.Secrets:
        verb.up(RunOptions(self.options.inventories, **fields), QUIET)
        return self.on_head()

    def rotate(self) -> secrets.Secrets:
        credentials.rotate(self.options, QUIET)
        return self.on_head()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def fail() -> None:
    raise HeadfirstError("a stage failed")


def test_a_run_does_not_carry_out_an_inventory_that_was_changed_while_it_waited(site: Site) -> None:
    site.up()
    [path] = site.options.inventories
    path.write_text(path.read_text().replace("192.0.2.2", "192.0.2.3"))  # as `replace` has, with the lock
    for change in (site.up, site.rotate):
        with pytest.raises(InputError, match="the inventory was changed") as caught:
            change()
        assert caught.value.where == str(path) and "again" in str(caught.value.hint)
    assert len(site.runs) == 1
    assert site.hosts.record("a", "/run/headfirst/lock.json") is None


def test_a_rotation_restarts_the_service_with_new_secrets(site: Site) -> None:
    old = site.up()
    new = site.rotate()
    tags, used = site.runs[-1]
    assert tags == credentials.TAGS
    assert used.webui_admin_password_before == old.webui_admin_password
    assert new == used.applied()
    assert not set(new.values()) & set(old.values())
    assert secrets.existing(site.cluster) == new
    assert site.hosts.record("a", "/run/headfirst/lock.json") is None


def test_a_rotation_that_failed_goes_on_with_its_own_secrets(site: Site) -> None:
    old = site.up()
    site.before_it_ends = fail
    for _ in range(2):
        with pytest.raises(HeadfirstError, match="a stage failed"):
            site.rotate()
    pending = site.on_head()
    assert pending.webui_admin_password_before == old.webui_admin_password
    assert site.runs[-1][1] == site.runs[-2][1] == pending
    site.before_it_ends = lambda: None
    assert site.rotate() == pending.applied()


def test_up_ends_a_rotation_only_with_the_chat_page(site: Site) -> None:
    site.up()
    site.before_it_ends = fail
    with pytest.raises(HeadfirstError):
        site.rotate()
    site.before_it_ends = lambda: None
    assert site.up(tags=("serve",)).is_rotating
    assert site.up(service="headfirst-demo").is_rotating
    assert not site.up().is_rotating


def test_there_is_nothing_to_rotate_before_up(site: Site) -> None:
    with pytest.raises(NotReadyError, match="is not up"):
        site.rotate()
    assert site.runs == []


def test_check_mode_changes_no_host_and_makes_no_credentials(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "run_phases", lambda *_, **__: DONE)
    verb.up(RunOptions(site.options.inventories, check=True), QUIET)
    assert site.hosts.record("a") is None
    assert secrets.existing(site.cluster) is None


def test_no_secret_is_in_the_owner_record_or_the_lock(site: Site) -> None:
    texts = []
    site.before_it_ends = lambda: texts.append(json.dumps(site.hosts.record("b", "/run/headfirst/lock.json")))
    used = site.up()
    texts.append(json.dumps(site.hosts.record("a")))
    assert len(texts) == 2
    assert not [value for value in used.values() for text in texts if value in text]


EVERYTHING = """\
[chat]
n1 ansible_host=192.0.2.1 cpu_cores=0-3
n2 ansible_host=192.0.2.2 cpu_cores=0-3
n3 ansible_host=192.0.2.3 cpu_cores=0-3
n4 ansible_host=192.0.2.4 cpu_cores=0-3
[chat:vars]
model=headfirst-demo
replicas=2
[spares]
n5 ansible_host=192.0.2.5 cpu_cores=0-3
[monitoring]
n6 ansible_host=192.0.2.6
[all:vars]
engine_device=cpu
model_source=demo
spare_takeover=true
tls=local-ca
"""
# A job has it in memory, and only while it runs.
NOT_KEPT = {"weights_token"}


def plays(playbook: str) -> Iterator[dict[str, Any]]:
    """Every play of a playbook of ours."""
    for play in yaml.safe_load((collection_root() / "playbooks" / playbook).read_text()):
        if imported := play.get("ansible.builtin.import_playbook"):
            yield from plays(imported)
        else:
            yield play


def takes(play: dict[str, Any], variable: str) -> bool:
    """Whether a role of the play, or the play itself, has the variable."""
    text = json.dumps(play)
    specs = [
        (collection_root() / "roles" / role / "meta" / "argument_specs.yml").read_text()
        for role in set(re.findall(r"headfirst\.serving\.(\w+)", text))
    ]
    entries = [entry for spec in specs for entry in yaml.safe_load(spec)["argument_specs"].values()]
    return variable in text or any(variable in (entry.get("options") or {}) for entry in entries)


def test_a_rotation_runs_every_stage_that_has_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables that another secret changes, found in the plays that take them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "all.ini").write_text(EVERYTHING)
    prepared = prepare([tmp_path / "all.ini"], [], probe=False)
    cluster, files = prepared.cluster, Artifacts(tmp_path / "wheel")
    old = verb._complete(cluster, secrets.Secrets(), QUIET, rotates=False).secrets
    new = old.rotated()
    changed: dict[str, set[str]] = {}  # variable: the playbooks that are given it
    carried = ""
    for before, after in zip(
        *(of_up(cluster, prepared.plan, given, files) for given in (old, new)), strict=True
    ):
        for host, variables in after.variables.items():
            names = [name for name in variables if variables[name] != before.variables[host][name]]
            for name in names:
                changed.setdefault(name, set()).add(after.playbook)
            carried += json.dumps([variables[name] for name in names])
    # Hosts get keys made of this one.
    kept = set(new.values()) - set(old.values()) - {new.supervisor_secret}
    assert "supervisor_keys" in changed and new.supervisor_secret not in carried
    assert len(kept) >= 6 and not [value for value in kept if value not in carried]
    for variable in changed.keys() - NOT_KEPT:
        every = [play for playbook in changed[variable] for play in plays(playbook)]
        tags = [set(play["tags"]) for play in every if takes(play, variable)]
        assert tags, f"no play takes {variable}"
        assert all(tag & set(credentials.TAGS) for tag in tags), f"{variable} stays as it was in {tags}"
