"""What holds for every target: all inventories, the same text twice, no secret, a header, sound syntax."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import get_args

import pytest
import yaml
from headfirst.common.errors import InputError
from headfirst.control.deployment.verbs.render import RenderOptions, Target, files_of, render
from headfirst.decide.plan.types import Plan
from headfirst.decide.render import compose
from headfirst.decide.render.files import header, is_ours, numbered
from rendering import ROOT, planned

INVENTORIES = sorted(path.name for path in (ROOT / "inventories").glob("*.ini"))
TARGETS = get_args(Target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("inventory", INVENTORIES)
def test_every_inventory_for_every_target(inventory: str, target: Target) -> None:
    plan = planned(inventory)
    once = files_of(plan, target, RenderOptions(), "deploy render x")
    # Also from a plan that was written down.
    assert (
        files_of(Plan.model_validate_json(plan.model_dump_json()), target, RenderOptions(), "deploy render x")
        == once
    )
    for name, file in once.items():
        assert is_ours(file.text), name
        assert "# Command: deploy render x\n" in file.text
        # The plan has blanks where secrets go; nothing here could know one.
        assert not re.search(r"(sk-|Bearer )[A-Za-z0-9_-]{8}", file.text), name
        if name.endswith(".yaml"):
            assert file.mode == 0o644
            assert all(isinstance(page, dict) for page in yaml.safe_load_all(file.text))
        else:
            assert file.mode == 0o755
            checked = subprocess.run(["bash", "-n"], input=file.text, text=True, capture_output=True)
            assert checked.returncode == 0, checked.stderr


def test_the_header_names_plan_versions_and_command() -> None:
    plan = planned("a100x4.ini")
    lines = header(plan, "deploy render a.ini --to slurm")
    assert re.fullmatch(r"Made by Headfirst \S+; .*", lines[0])
    assert lines[1] == "Command: deploy render a.ini --to slurm"
    assert re.fullmatch(r"Plan: cluster a100x4, sha256:[0-9a-f]{64}", lines[2])
    service = plan.services[0]
    assert f"{service.engine} {service.engine_version}" in lines[3]
    assert service.replicas[0].nodes[0].container.image in lines[3]


def test_the_digest_is_that_of_the_plan() -> None:
    digests = {header(planned(name), "")[2].partition(",")[2] for name in ("h100x2.ini", "h20x2.ini")}
    other = planned("h100x2.ini", "engine_port=30100")
    assert len(digests | {header(other, "")[2].partition(",")[2]}) == 3


def test_a_comment_stays_one_line() -> None:
    plan = planned("h200x1.ini")
    text = compose.files(plan, header(plan, "deploy render 'a\nimage: evil'"))["compose.yaml"].text
    assert "a?image: evil" in text
    assert yaml.safe_load(text).keys() == {"services", "secrets"}


def test_other_files_are_not_taken_for_ours() -> None:
    assert is_ours("#!/bin/bash\n# Made by Headfirst 0.1.0; x\n")
    assert not is_ours("#!/bin/bash\n\n# Made by Headfirst 0.1.0; x\n")
    assert not is_ours("Made by Headfirst\n")
    assert not is_ours("")


@pytest.mark.parametrize(
    ("host", "index", "count", "name"),
    [("n1", 0, 2, "1-n1"), ("n1", 8, 12, "09-n1"), ("../x y", 0, 1, "1-.._x_y")],
)
def test_names_of_files_have_an_order_and_no_folder(host: str, index: int, count: int, name: str) -> None:
    assert numbered(host, index, count) == name


def test_a_model_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    text = (ROOT / "inventories" / "h200x1.ini").read_text()
    path = tmp_path / "small.ini"
    path.write_text(text.replace("gpus=8", "gpus=2"))
    with pytest.raises(InputError, match="does not fit"):
        render([path], [], "compose", RenderOptions(), command="")


@pytest.mark.parametrize("target", ["docker-run", "compose"])
def test_a_proxy_is_refused_where_the_page_would_need_it(target: Target) -> None:
    path = ROOT / "inventories" / "h200x1.ini"
    with pytest.raises(InputError, match="proxy"):
        render([path], ["tls=local-ca"], target, RenderOptions(), command="")
    assert render([path], ["tls=local-ca"], "slurm", RenderOptions(), command="").left_out[-1] == "the proxy"


def test_what_is_left_out_is_stated() -> None:
    path = ROOT / "inventories" / "h100x2-services.ini"
    slurm = render([path], [], "slurm", RenderOptions(), command="").left_out
    assert {"the chat page", "the router"} <= set(slurm)
    compose_too = render([path], [], "compose", RenderOptions(), command="").left_out
    assert not {"the chat page", "the router"} & set(compose_too)
