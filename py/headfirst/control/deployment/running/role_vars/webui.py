"""Variables of the role open_webui."""

from __future__ import annotations

from headfirst.common import container_names as names
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.artifacts import Artifacts, image_source
from headfirst.control.deployment.running.role_vars.host_vars import HostVars
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.types import Plan
from headfirst.decide.plan.webui import chats


def webui_vars(plan: Plan, secrets: Secrets, files: Artifacts) -> HostVars:
    """Variables for `playbooks/webui.yml`; none where no service answers chats."""
    if plan.webui is None:
        return {}
    answering = chats(plan.services)
    keys = [secrets.api_key(service.name) for service in answering for _ in service.urls]
    return {
        plan.webui.host: {
            "open_webui_name": plan.webui.container.name,
            "open_webui_container": plan.webui.container.module_spec(),
            **image_source("headfirst_webui_image", files.webui),
            "open_webui_url": plan.webui.url,
            # Open WebUI takes a key for each address of its list.
            "open_webui_engine_api_key": ";".join(keys),
            "open_webui_model_name": answering[0].served_model_name,
            "open_webui_admin_email": secrets.webui_admin_email,
            "open_webui_admin_password": secrets.webui_admin_password,
            "open_webui_admin_password_before": secrets.webui_admin_password_before or "",
            "open_webui_secret_key": secrets.webui_secret_key,
        }
    }


def webui_stop_vars(cluster: Cluster) -> HostVars:
    """Variables per host for the chat page's part of `playbooks/down.yml`."""
    return {cluster.webui.name: {"open_webui_name": names.WEBUI}}
