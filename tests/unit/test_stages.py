"""The list of stages: the playbooks, the runs of `up` and `down`, `-t`, `-l` and the pages agree with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from headfirst.collection import collection_root
from headfirst.common.errors import InputError
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.artifacts import Artifacts
from headfirst.control.deployment.running.phases import of_down, of_up
from headfirst.control.deployment.running.stages import (
    ALL_RANKS,
    ALONE,
    GROUPS,
    NAMES,
    STAGES,
    TAGS,
    checked_tags,
    complete,
    refuse_limit,
)
from headfirst.control.run.translate import parse_play_name
from run_variables import up_variables
from together import together

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOKS = collection_root() / "playbooks"
REMOVING = ("stop_monitoring.yml", "down.yml")
COMMON = "gpus=8\ngpu=H100-80G\nnic=eth0\nhca=none\nmodel_source=huggingface\nproxy=true\n"
# Everything that has a stage of its own: replicas with a router, a spare, an adapter, a proxy, monitoring.
ALL = (
    "[chat]\nn1 ansible_host=192.0.2.1\nn2 ansible_host=192.0.2.2\n[chat:vars]\nmodel=Qwen/Qwen3-0.6B\n"
    "gpus_per_replica=8\nadapters=sql=org/lora-sql\n[spares]\nn3 ansible_host=192.0.2.3\n"
    f"[monitoring]\nn4 ansible_host=192.0.2.4\n[all:vars]\n{COMMON}"
)
HEAD = "[head]\nn1 ansible_host=192.0.2.1\n[router]\nn1\n[monitoring]\nn1\n"
ONE_REPLICA = f"{HEAD}[all:vars]\n{COMMON}model=Qwen/Qwen3-0.6B\n"


def plays(playbook: str) -> Iterator[dict[str, Any]]:
    for play in yaml.safe_load((PLAYBOOKS / playbook).read_text(encoding="utf-8")):
        if imported := play.get("ansible.builtin.import_playbook"):
            yield from plays(imported)
        else:
            yield play


def imports(playbook: str) -> list[str]:
    found = yaml.safe_load((PLAYBOOKS / playbook).read_text(encoding="utf-8"))
    return [play["ansible.builtin.import_playbook"] for play in found]


@together("playbook", dict.fromkeys(stage.playbook for stage in STAGES))
def test_the_plays_of_a_playbook_are_its_stages(playbook: str) -> None:
    found = {parse_play_name(play["name"]).stage: set(play["tags"]) for play in plays(playbook)}
    listed = {stage.name: {stage.group, stage.name} for stage in STAGES if stage.playbook == playbook}
    assert list(found.items()) == list(listed.items())


def test_up_imports_the_playbooks_of_all_stages_in_their_order() -> None:
    listed = dict.fromkeys(stage.playbook for stage in STAGES if stage.playbook not in ALONE)
    assert imports("up.yml") == list(listed)
    # Each stage that takes packages or weights has those of a bundle.
    [copies] = plays("bundle.yml")
    stages = [stage for stage in STAGES if stage.group in ("host", "weights")]
    assert set(copies["tags"]) == {tag for stage in stages for tag in (stage.group, stage.name)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The runs of `up` and `down` by inventory."""
    folder = tmp_path_factory.mktemp("stages")
    files = Artifacts(Path("wheel"))
    secrets = Secrets(grafana_admin_password="grafana-password").with_keys(["chat"])
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        for name, text in (("all", ALL), ("one", ONE_REPLICA)):
            (folder / f"{name}.ini").write_text(text)
            own = prepare([folder / f"{name}.ini"], [], probe=False)
            arguments = (own.cluster, own.plan, secrets, files)
            found[name] = (of_up(*arguments), up_variables(*arguments), of_down(own.cluster))
    yield found


@pytest.mark.parametrize("name", ["all", "one"])
def test_roles_take_the_variables_of_a_run(runs: dict[str, Any], name: str) -> None:
    roles = {path.parents[1].name: path for path in ROOT.glob("roles/*/meta/argument_specs.yml")}
    options = {
        role: {
            key: option
            for entry_point in yaml.safe_load(path.read_text())["argument_specs"].values()
            for key, option in entry_point.get("options", {}).items()
        }
        for role, path in roles.items()
    }
    given = [item for phase in runs[name][0] for own in phase.variables.values() for item in own.items()]
    for key, value in given:
        # engine_image_name is a variable of role engine_image, not of role engine.
        role = max((role for role in options if key.startswith(f"{role}_")), key=len, default=None)
        if role:
            assert key in options[role]
            checked = ArgumentSpecValidator({key: options[role][key]}).validate({key: value})
            assert not checked.error_messages


def test_no_stage_is_left_out_of_a_run(runs: dict[str, Any]) -> None:
    order = list(dict.fromkeys(stage.playbook for stage in STAGES))
    assert list(dict.fromkeys(phase.playbook for phase in runs["all"][0])) == order
    # One replica gets the variables of all stages.
    up, every, _ = runs["one"]
    assert [phase.playbook for phase in up] == ["up.yml", "close.yml", "monitoring.yml"]
    given = {name for phase in up for own in phase.variables.values() for name in own}
    assert given == {name for own in every.values() for name in own}


def test_down_imports_the_playbooks_of_its_runs(runs: dict[str, Any]) -> None:
    several = list(dict.fromkeys(phase.playbook for phase in runs["all"][2]))
    assert several == ["stop_monitoring.yml", *imports("down.yml")]
    assert [phase.playbook for phase in runs["one"][2]] == list(REMOVING)


def test_down_removes_what_each_stage_starts() -> None:
    removed = {parse_play_name(play["name"]).stage for name in REMOVING for play in plays(name)}
    # What waits on a spare is removed with the ranks.
    started = {stage.name for stage in STAGES if stage.group not in ("check", "host", "weights")}
    assert started - {"standby"} <= removed


@pytest.mark.parametrize("page", ["concepts.md", "zh-CN/concepts.md"])
def test_the_page_of_concepts_lists_the_stages_and_their_groups(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (paragraph,) = (part for part in text.split("\n\n") if "`--tags`" in part)
    names, _, groups = re.sub(r"\band\b", "", paragraph).replace("The stages are", "").partition("`--tags`")
    assert re.findall(r"[a-z_]+", re.split("[;；]", names)[0]) == list(NAMES)
    assert re.findall(r"[a-z_]+", re.split("[:：]", groups)[1]) == list(GROUPS)


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_readme_has_no_other_stages(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    drawn = re.findall(r"[a-z_]+", re.search(r"deploy up: +\w+ ► (.*)", text)[1])  # type: ignore[index]
    assert [name for name in NAMES if name in drawn] == drawn
    assert re.search(rf"[(（]{'[,、] ?'.join(ALL_RANKS)}[)）]", text)


def test_tags_are_taken_one_by_one() -> None:
    assert checked_tags(["check, weights", "webui"]) == ("check", "weights", "webui")
    assert set(complete("w")) == {"weights", "webui"}
    with pytest.raises(InputError, match="no stage has the tag 'weigths'") as caught:
        checked_tags(["weigths"])
    assert "Did you mean weights?" in str(caught.value.hint)


@together("stage", [stage for stage in STAGES if stage.playbook != "deregister.yml"])
def test_stages_of_hosts_take_a_limit_and_those_of_all_ranks_refuse_it(stage: Any) -> None:
    for tag in (stage.group, stage.name):
        assert tag in TAGS
        if stage.group not in ALL_RANKS:
            refuse_limit("node3", [tag])
            continue
        with pytest.raises(InputError, match=f"stage {tag} acts .* without --limit") as caught:
            refuse_limit("node3", [tag])
        assert "-l node3 -t host" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("tags", "what"), [([], "the stages weights and serve act"), (["host", "serve"], "stage serve")]
)
def test_all_stages_together_refuse_a_limit(tags: list[str], what: str) -> None:
    refuse_limit(None, tags)
    with pytest.raises(InputError, match=what):
        refuse_limit("node3", tags)
