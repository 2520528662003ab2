"""What role weights hands to its job: secrets in no argument, settings of the hubs' clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.headfirst.serving.plugins.plugin_utils import job_script
from ansible_collections.headfirst.serving.plugins.plugin_utils.job_script import Job
from headfirst.control.deployment.running.role_vars.weights import hub_environment

ROLE = Path(__file__).resolve().parents[2] / "roles" / "weights"


def value(name: str, **variables: Any) -> Any:
    loader = DataLoader()
    own = loader.load_from_file(str(ROLE / "vars" / "main.yml"), trusted_as_template=True)
    defaults = loader.load_from_file(str(ROLE / "defaults" / "main.yml"), trusted_as_template=True)
    host = {
        "weights_model": "/data/model",
        "weights_name": "model",
        "weights_source": "path",
        "weights_address": "10.0.0.1",
        "weights_members": ["10.0.0.1", "10.0.0.2"],
        "weights_token": "t0ken",
        "inventory_hostname": "node1",
        "ansible_check_mode": True,
        "ansible_play_hosts": [],
        "__weights_choice": {"holders": [], "head_gives": False, "order": ["10.0.0.1", "10.0.0.2"]},
        "__weights_parts": {},
        "__weights_state": {},
        "__weights_folders": {"model": {}, "place": {"id": "1"}, "error": ""},
    }
    return Templar(loader, variables={**defaults, **own, **host, **variables}).template(
        trust_as_template("{{ " + name + " }}")
    )


def test_the_password_of_a_mirror_is_in_no_argv() -> None:
    mirror = {"HF_ENDPOINT": "https://me:pa55@mirror.example", "HF_HOME": "/data/cache"}
    options = {"weights_environment": mirror, "weights_source": "huggingface", "weights_hub_token": "hf_x"}
    plain, secrets = (value(name, **options) for name in ("__weights_environment", "__weights_secrets"))
    job = Job("weights", ["headfirst-weights"], plain, secrets)
    argv = " ".join(job_script._systemd_run(job))
    assert "pa55" not in argv and "hf_x" not in argv and "t0ken" not in argv
    assert secrets == {**mirror, "HEADFIRST_TRANSFER_TOKEN": "t0ken", "HF_TOKEN": "hf_x"}
    assert "MODELSCOPE_CACHE" in argv


def test_settings_of_the_hubs_clients_reach_the_hosts() -> None:
    settings = {"HF_ENDPOINT": "https://mirror.example", "HF_HUB_DISABLE_XET": "1"}
    assert hub_environment({**settings, "MODELSCOPE_ENDPOINT": "", "HF_HOME": "/home/me"}) == settings
