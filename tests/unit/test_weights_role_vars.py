"""What role weights hands to its job: secrets in no argument, settings of the hubs' clients."""

from __future__ import annotations

from typing import Any

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import SOURCES
from ansible_collections.headfirst.serving.plugins.plugin_utils import job_script
from ansible_collections.headfirst.serving.plugins.plugin_utils.job_script import Job
from headfirst.control.deployment.running.role_vars.weights import hub_environment
from weights_role import NOTHING, rendered, role


def decided(**variables: Any) -> dict[str, Any]:
    return role({"a": NOTHING, "b": NOTHING}, **variables).decide()


def test_the_whole_command_and_environment_of_a_job() -> None:
    decision = decided(
        source="huggingface", model="org/m", revision="v1", convert_to_bf16=True, name="m-bf16"
    )
    assert decision["argv"] == [
        "/opt/headfirst/venv/bin/headfirst-weights", "pipeline", "/var/lib/headfirst/models/m",
        "--address", "10.0.0.1", "--port", "5010", "--connections", "2", "--fetch", "head",
        "--member", "10.0.0.1", "--member", "10.0.0.2",
        "--signed-by", "", "--signing-key", "/run/headfirst/jobs/weights-m-bf16.key",
        "--model", "org/m", "--from", "huggingface", "--revision", "v1",
        "--convert-to", "/var/lib/headfirst/models/m-bf16",
    ]  # fmt: skip
    assert decision["environment"] == {
        "HF_HOME": "/var/lib/headfirst/models/.cache/huggingface",
        "MODELSCOPE_HOME": "/var/lib/headfirst/models/.cache/modelscope",
        "MODELSCOPE_CACHE": "/var/lib/headfirst/models/.cache/modelscope",
    }


def test_the_password_of_a_mirror_is_in_no_argv() -> None:
    mirror = {"HF_ENDPOINT": "https://me:pa55@mirror.example", "HF_HOME": "/data/cache"}
    decision = decided(source="huggingface")
    secrets = rendered(
        "__weights_secrets",
        __weights_decided={"decision": decision},
        weights_environment=mirror,
        weights_token="t0ken",
        weights_hub_token="hf_x",
    )
    job = Job("weights", ["headfirst-weights"], decision["environment"], secrets)
    argv = " ".join(job_script._systemd_run(job))
    assert "pa55" not in argv and "hf_x" not in argv and "t0ken" not in argv
    assert secrets == {**mirror, "HEADFIRST_TRANSFER_TOKEN": "t0ken", "HF_TOKEN": "hf_x"}
    assert "MODELSCOPE_CACHE" in argv


def test_a_hubs_token_is_in_the_variable_of_the_hub_alone() -> None:
    for name, source in SOURCES.items():
        secrets = rendered(
            "__weights_secrets",
            __weights_decided={"decision": decided(source=name)},
            weights_environment={},
            weights_token="",
            weights_hub_token="hf_x",
        )
        of_hub = {source.token_variable: "hf_x"} if source.is_hub else {}
        assert secrets == {"HEADFIRST_TRANSFER_TOKEN": "", **of_hub}


def test_settings_of_the_hubs_clients_reach_the_hosts() -> None:
    settings = {"HF_ENDPOINT": "https://mirror.example", "HF_HUB_DISABLE_XET": "1"}
    assert hub_environment({**settings, "MODELSCOPE_ENDPOINT": "", "HF_HOME": "/home/me"}) == settings
