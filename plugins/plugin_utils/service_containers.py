"""What the containers of the proxy, the routers and the chat page always have; roles and plan read it.

`BASES` are by role: parameters of a container as C(spec) of the module `container` has them. `SECRETS` give
the variables of its env file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_CONFINED = {"network_mode": "host", "cap_drop": ["ALL"], "restart_policy": "unless-stopped"}

BASES: Mapping[str, Mapping[str, Any]] = {
    "proxy": {
        **_CONFINED,
        # The image's own user may neither read the files of root nor bind a port below 1024. HAProxy changes
        # its user itself.
        "user": "0",
        "entrypoint": "haproxy",
        "command": ["-W", "-db", "-f", "/etc/headfirst-proxy/haproxy.cfg"],
        "volumes": [
            "/etc/headfirst/proxy:/etc/headfirst-proxy:ro",
            "/var/lib/headfirst/proxy:/run/headfirst-proxy",
        ],
        # KILL: after a reload the old process, which has another user by then, gets the signal to stop.
        "cap_add": ["KILL", "NET_BIND_SERVICE", "SETGID", "SETUID"],
    },
    "router": _CONFINED,
    "open_webui": {
        **_CONFINED,
        "env_file": "/etc/headfirst/webui.env",
        "cap_add": ["NET_BIND_SERVICE"],  # for ports below 1024
        "environment": {
            "DATA_DIR": "/app/backend/data",
            # Its own default serves /docs and /openapi.json to everybody.
            "ENV": "prod",
            # Otherwise settings of the first start, kept in the database, win over these.
            "ENABLE_PERSISTENT_CONFIG": "False",
            # Without the persistent settings sign-up would be open again after a restart.
            "ENABLE_SIGNUP": "False",
            "ENABLE_OLLAMA_API": "False",
            # Its own default is *: every client may write the address that the server takes for the client's.
            "FORWARDED_ALLOW_IPS": "127.0.0.1",
            # Nothing is fetched from a hub, no embedding model is loaded.
            "OFFLINE_MODE": "True",
            "RAG_EMBEDDING_ENGINE": "openai",
            "BYPASS_EMBEDDING_AND_RETRIEVAL": "True",
            "USE_SLIM_DOCKER": "true",
            # Each would cost the engine one more request a chat.
            "ENABLE_TITLE_GENERATION": "False",
            "ENABLE_TAGS_GENERATION": "False",
            "ENABLE_FOLLOW_UP_GENERATION": "False",
            # Otherwise every prompt carries 26 kB of tool definitions, more than a small context holds.
            "DEFAULT_MODEL_METADATA": '{"capabilities":{"builtin_tools":false}}',
        },
    },
}


def router_secrets(api_key: str, admin_key: str) -> dict[str, str]:
    """Who has the first key may use the models; who has the second may also change the list of replicas."""
    keys = f"--api-key {api_key} --control-plane-api-keys headfirst:headfirst:admin:{admin_key}"
    return {"ROUTER_ARGUMENTS": keys}


def open_webui_secrets(
    engine_api_key: str, admin_email: str, admin_password: str, secret_key: str
) -> dict[str, str]:
    """`engine_api_key` has one key for each address of OPENAI_API_BASE_URLS, separated by `;`."""
    return {
        "OPENAI_API_KEYS": engine_api_key,
        "WEBUI_ADMIN_EMAIL": admin_email,
        "WEBUI_ADMIN_PASSWORD": admin_password,
        "WEBUI_SECRET_KEY": secret_key,
    }


SECRETS: Mapping[str, Callable[..., dict[str, str]]] = {
    "router": router_secrets,
    "open_webui": open_webui_secrets,
}
