"""Role variables in an inventory: those that the plan decides are refused, the others reach the role."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.common.errors import InputError
from headfirst.control.deployment.prepare import prepare

TEXT = """\
[head]
node1 ansible_host=192.0.2.7 gpus=8 gpu=A100-80G nic=eth0
[all:vars]
model=deepseek-ai/DeepSeek-R1-Distill-Llama-70B
"""


def plan_with(folder: Path, line: str) -> None:
    path = folder / "mine.ini"
    path.write_text(TEXT + line + "\n")
    prepare([path], [], probe=False)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("open_webui_port=9090", "webui_port"),
        ("open_webui_env=A=1", "webui_env"),
        ("engine_ready_timeout=5", "ready_timeout"),
        ("weights_model=x", "model"),
        ("engine_name=mine", "deploy variables"),
        ("engine_url=http://192.0.2.1", "deploy variables"),
        ("open_webui_name=mine", "deploy variables"),
        ("monitoring_containers=[]\n[monitoring]\nn9 ansible_host=192.0.2.9", "deploy variables"),
    ],
)
def test_what_the_plan_decides_is_refused_with_the_setting(tmp_path: Path, line: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        plan_with(tmp_path, line)
    assert caught.value.exit_code == 2
    assert line.split("=")[0] in caught.value.what
    assert hint in str(caught.value.hint)
    assert str(tmp_path) in str(caught.value.where)


@pytest.mark.parametrize(
    "line", ["engine_stop_timeout=5", "open_webui_ready_timeout=60", "engine_env=A=1 B=2"]
)
def test_other_variables_work(tmp_path: Path, line: str) -> None:
    plan_with(tmp_path, line)
