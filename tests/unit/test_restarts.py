"""What `up` announces of replicas that restart: the parts that differ, and the lines that keep them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.headfirst.serving.plugins.module_utils import container_spec
from headfirst.collection import collection_root
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.prepare import Prepared, prepare
from headfirst.control.deployment.running import restarts
from headfirst.control.deployment.running.role_vars.engine import engine_vars
from headfirst.control.live.specifications import Present

INVENTORY = """[head]
node1 ansible_host=192.0.2.11
[workers]
node2 ansible_host=192.0.2.12
[all:vars]
gpus=8
gpu=A100-80G
nic=eth0
hca=none
model=Qwen/Qwen2.5-72B-Instruct
"""
SECRETS = Secrets(engine_api_key="sk-restarts-1")
Plans = Callable[..., Prepared]


@pytest.fixture
def plans(tmp_path: Path) -> Plans:
    def of(*lines: str) -> Prepared:
        path = tmp_path / "cluster.ini"
        path.write_text(INVENTORY + "".join(f"{line}\n" for line in lines))
        return prepare([path], [], probe=False)

    return of


def as_the_role_writes(variables: Mapping[str, Any]) -> dict[str, Any]:
    """`__engine_spec` of the role engine."""
    internal = yaml.safe_load((collection_root() / "roles/engine/vars/main.yml").read_text())
    texts = {name: trust_as_template(text) for name, text in internal.items() if isinstance(text, str)}
    spec: dict[str, Any] = Templar(DataLoader(), variables={**variables, **texts}).template(
        texts["__engine_spec"]
    )
    return container_spec.canonical(spec, "sha256:1", {})


def runs(prepared: Prepared, secrets: Secrets = SECRETS) -> dict[str, dict[str, Present]]:
    """Containers of a plan, as the hosts have them."""
    (service,) = prepared.plan.services
    return {
        node.host: {
            node.container.name: Present(
                True, as_the_role_writes(engine_vars(service, replica, node, secrets)), "sha256:1"
            )
        }
        for replica in service.replicas
        for node in replica.nodes
    }


def announced(
    monkeypatch: pytest.MonkeyPatch, running: Mapping[str, Any], planned: Prepared, secrets: Secrets = SECRETS
) -> Sequence[Any]:
    monkeypatch.setattr(restarts, "specifications", lambda hosts, planned: running)
    return restarts.announced(planned, secrets, None, ())


def test_the_same_plan_announces_nothing(plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    assert announced(monkeypatch, runs(plans()), plans()) == []


def test_hosts_without_containers_announce_nothing(plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    assert announced(monkeypatch, {"node1": {}, "node2": {}}, plans()) == []


def test_a_changed_default_is_named_with_the_line_that_keeps_it(
    plans: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = plans("engine_args=--chunked-prefill-size 4096 --log-level warning")
    (finding,) = announced(monkeypatch, runs(earlier), plans("engine_args=--log-level warning"))
    assert "Replica 0" in finding.what
    assert "without --chunked-prefill-size 4096" in finding.what
    line = finding.fix.partition("write: ")[2]
    assert not announced(monkeypatch, runs(earlier), plans(line))


def test_what_no_setting_keeps_has_no_line(plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    later = plans("engine_args=--log-level warning", "engine_env=A_VARIABLE=xyzzy")
    (finding,) = announced(monkeypatch, runs(plans()), later)
    assert "with --log-level warning" in finding.what
    assert "environment A_VARIABLE" in finding.what
    assert "xyzzy" not in finding.what
    assert finding.fix == ""


@pytest.mark.parametrize(
    ("line", "difference"),
    [
        ("shm_size=64g", "shm_size 64g → 32g"),
        ("engine_image=lmsysorg/sglang:v0.5.22", "image lmsysorg/sglang:v0.5.22 → lmsysorg/sglang:v0.5.23"),
        ("engine_env='NCCL_DEBUG=WARN A=1'", "environment NCCL_DEBUG"),
    ],
)
def test_other_settings_keep_what_runs(
    plans: Plans, monkeypatch: pytest.MonkeyPatch, line: str, difference: str
) -> None:
    earlier = plans(line)
    (finding,) = announced(monkeypatch, runs(earlier), plans())
    assert difference in finding.what
    lines = finding.fix.partition("write: ")[2].split("  ")
    assert not announced(monkeypatch, runs(earlier), plans(*lines))


def test_another_key_is_the_configuration_file(plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = announced(monkeypatch, runs(plans()), plans(), Secrets(engine_api_key="sk-restarts-2"))
    assert "the configuration file" in finding.what
    assert "sk-restarts" not in finding.what


def test_the_page_is_announced(plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = plans(), plans("webui_env='ENABLE_WEB_SEARCH=True'")
    page = before.plan.webui
    assert page is not None
    spec = container_spec.canonical(page.container.module_spec(), "sha256:1", {"A_SECRET": "b"})
    running = {page.host: {page.container.name: Present(True, spec, "sha256:1")}}
    assert not announced(monkeypatch, running, before)
    (finding,) = announced(monkeypatch, running, after)
    assert "The chat page restarts: environment ENABLE_WEB_SEARCH" in finding.what
    stopped = {page.host: {page.container.name: Present(False, spec, "sha256:1")}}
    assert not announced(monkeypatch, stopped, after)


def test_a_rank_that_joins_is_named(plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    present = runs(plans()) | {"node2": {}}
    (finding,) = announced(monkeypatch, present, plans())
    assert "a rank on node2" in finding.what


def test_ranks_of_another_name_are_announced(plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    present = {
        host: {"headfirst-engine-former": container}
        for host, ranks in runs(plans()).items()
        for container in ranks.values()
    }
    (finding,) = announced(monkeypatch, present, plans())
    assert finding.what.startswith("headfirst-engine-former on node1, node2 stops")
    assert not restarts.announced(plans(), SECRETS, None, ("image",))


def test_text_of_a_label_cannot_control_the_terminal(plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    present = runs(plans())
    name, container = next(iter(present["node1"].items()))
    spec = {**container.spec, "command": [*container.spec["command"], "--x", "\x1b]0;title\x07" + "y" * 9999]}
    present["node1"][name] = container._replace(spec=spec)
    (finding,) = announced(monkeypatch, present, plans())
    assert "\x1b" not in finding.what
    assert len(finding.what) < 500
