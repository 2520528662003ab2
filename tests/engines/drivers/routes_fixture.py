"""An engine's HTTP server without a GPU: what computes is replaced, and the routes are written to $ROUTES.

It changes modules when a process imports them, as the check of keys does, which loads it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock

# Whatever routes a task of vLLM adds.
TASKS = ("generate", "embed", "classify", "score", "token_embed", "token_classify", "transcription")
TASKS += ("realtime", "render", "reward", "plugin")


def vllm(entry: Any) -> None:
    """The client of the engine's processes, and the state that handlers have."""

    @asynccontextmanager
    async def client(*_arguments: Any, **_options: Any) -> AsyncIterator[Any]:
        lives = {"errored": False, "is_running": True}
        model = MagicMock(get_pooling_task=lambda _tasks: "embed")
        tasks = AsyncMock(return_value=TASKS)
        yield MagicMock(get_supported_tasks=tasks, check_health=AsyncMock(), model_config=model, **lives)

    async def state(engine: Any, state: Any, arguments: Any, *_more: Any) -> None:
        state.engine_client, state.args = engine, arguments
        state.enable_server_load_tracking = state.log_stats = False

    entry.build_async_engine_client, entry.init_app_state = client, state


def lmdeploy(server: Any) -> None:
    """The engine, and what reads the model's folder for it."""
    engine = MagicMock(backend_config=object(), engine=MagicMock(is_dummy=False, engine_config=object()))
    server.get_task = lambda *_arguments, **_options: (None, lambda **_more: engine)
    server.set_parsers = server.resolve_default_gen_config = lambda *_arguments: None
    server.get_model_list = lambda _context: ["m"]

    def lifespan(_config: Any, _engine: Any, context: Any) -> Any:
        @asynccontextmanager
        async def registered(_app: Any) -> AsyncIterator[None]:
            server.register_to_proxy(context)
            yield

        return registered

    server.create_lifespan_handler = lifespan


def uvicorn(server: Any) -> None:
    """Every server writes its routes once it has started."""
    startup = server.Server.startup

    async def and_write(self: Any, *arguments: Any, **options: Any) -> None:
        await startup(self, *arguments, **options)
        found = json.dumps(sorted(routes(self.config.loaded_app)))
        Path(os.environ["ROUTES"], f"{self.config.port}.json").write_text(found, encoding="utf-8")

    server.Server.startup = and_write


def routes(app: Any) -> list[tuple[str, str]]:
    """Path and method of each route below an application; WEBSOCKET and MOUNT are methods here."""
    while not hasattr(app, "routes"):
        app = getattr(app, "original_router", None) or app.app  # of a router that FastAPI keeps whole
    found = []
    for route in app.routes:
        kind = type(route).__name__
        if "Mount" in kind:
            found.append((route.path, "MOUNT"))
        elif "WebSocket" in kind:
            found.append((route.path, "WEBSOCKET"))
        elif hasattr(route, "methods"):
            found += [(route.path, method) for method in route.methods]
        else:
            found += routes(route)
    return found


CHANGES = {
    "vllm.entrypoints.launchers.api_server.entry": vllm,
    "lmdeploy.serve.openai.api_server": lmdeploy,
    "lmdeploy.utils": lambda utils: setattr(utils, "get_max_batch_size", lambda _device: 8),
    "uvicorn.server": uvicorn,
}


class OnImport(importlib.abc.MetaPathFinder):
    """Changes the modules once they are loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The module as it is."""
        if name not in CHANGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec and spec.loader
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            CHANGES[name](module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, OnImport())
