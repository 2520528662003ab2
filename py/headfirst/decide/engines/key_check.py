"""The check of keys before an engine's API: `key_check.py KEYS COMMAND…` runs the command behind it.

It is `sitecustomize` in each Python process of the command. KEYS is the file with the keys.
"""

import base64
import contextlib
import hmac
import importlib.abc
import importlib.machinery
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

# Without a key; with the API key, also what is below them. All else needs the admin key.
PUBLIC = ("/health", "/health_generate", "/metrics")
USERS = (
    *("/v1", "/v2", "/api", "/anthropic/v1", "/cohere/v2", "/inference/v1/generate"),
    *("/generate", "/generative_scoring", "/invocations", "/vertex_generate", "/ping", "/version", "/load"),
    *("/classify", "/encode", "/pooling", "/score", "/rerank", "/get_ppl", "/tokenize", "/detokenize"),
    *("/tokenizer_info", "/model_info", "/get_model_info", "/open_session", "/close_session"),
    *("/parse_function_call", "/separate_reasoning"),
)
ADMIN = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter")


def holder(authorization: bytes, user: str, admin: "str | None") -> str:
    """Whose key the header has: user, admin or nobody."""
    scheme, _, key = authorization.partition(b" ")
    if scheme.lower() == b"basic":  # of an address with a password
        with contextlib.suppress(ValueError):
            key = base64.b64decode(key).partition(b":")[2]
    if admin and hmac.compare_digest(key, admin.encode()):
        return "admin"
    return "user" if hmac.compare_digest(key, user.encode()) else "nobody"


def needed(path: str) -> str:
    """Whose key a request needs: nobody's, that of a user, or of the admin."""
    path = path.rstrip("/")
    if path in PUBLIC:
        return "nobody"
    below = any(f"{path}/".startswith(f"{allowed}/") for allowed in USERS)
    return "user" if below and path not in ADMIN else "admin"


def marked(routes: Any, path: str, method: Any) -> bool:
    """Whether the engine's own check, SGLang's, takes the admin key there in place of the API key."""
    marked_routes = [route for route in routes if hasattr(getattr(route, "endpoint", None), "_auth_level")]
    return any(route.path == path and method in route.methods for route in marked_routes)


def guard(applications: Any) -> None:
    """Put the check before every application of FastAPI."""
    import yaml

    keys = yaml.safe_load(Path(os.environ["HEADFIRST_KEYS"]).read_text(encoding="utf-8"))
    admin = keys.pop("admin-api-key", None)
    (user,) = keys.values()
    user, admin = user if isinstance(user, list) else (user, admin)
    answer = applications.FastAPI.__call__

    async def checked(self: Any, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or scope.get("method") == "OPTIONS":
            await answer(self, scope, receive, send)
            return
        path, root = scope["path"], self.root_path or scope.get("root_path", "")
        path = path[len(root) :] if f"{path}/".startswith(f"{root}/") else path
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        need, has = needed(path), holder(sent[0] if sent else b"", user, admin)
        if has == "admin" and not marked(self.routes, path, scope.get("method")):
            others = [pair for pair in scope["headers"] if pair[0] != b"authorization"]
            scope = {**scope, "headers": [*others, (b"authorization", f"Bearer {user}".encode())]}
        if need == "nobody" or has in ("admin", need):
            await answer(self, scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            status, json = 401 if has == "nobody" else 403, [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": status, "headers": json})
            await send({"type": "http.response.body", "body": b'{"error": "This path needs another key."}'})

    applications.FastAPI.__call__ = checked


class OnImport(importlib.abc.MetaPathFinder):
    """Guards FastAPI in the processes that import it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The module as it is, to be changed once it is loaded."""
        if name != "fastapi.applications":
            return None
        spec: Any = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            guard(module)

        spec.loader.exec_module = exec_module
        return spec


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, OnImport())
elif __name__ == "__main__":
    keys, *command = sys.argv[1:]
    given = sys.orig_argv.index("-c") + 1 if sys.argv[0] == "-c" else 0
    text = sys.orig_argv[given] if given else Path(__file__).read_text(encoding="utf-8")
    folder = tempfile.mkdtemp()
    Path(folder, "sitecustomize.py").write_text(text, encoding="utf-8")
    folders = [folder, os.environ.get("PYTHONPATH")]
    os.environ.update(HEADFIRST_KEYS=keys, PYTHONPATH=os.pathsep.join(filter(None, folders)))
    os.execvp(command[0], command)  # noqa: S606 - the engine's command
