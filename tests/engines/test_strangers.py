"""Who reaches which path and which socket of each engine's server, and docs/security.md has a row for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import engine_sites
import pytest
from served import ADMIN, PORT, USER, Served, served, session

SECURITY = engine_sites.ROOT / "docs" / "security.md"
LEVELS = ("without a key", "with the API key", "with the admin key alone")
REFUSED = (401, 403)
# What opens further routes of vLLM.
ALL_OF_VLLM = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
ARGUMENTS = "engine_args=--enable-lora --enable-tokenizer-info-endpoint --enable-fault-tolerance "
ARGUMENTS += (
    "--enable-offline-docs --profiler-config.profiler torch --profiler-config.torch_profiler_dir /tmp"
)
DATA_PARALLEL = "gpus=2\nengine_args=--dp 2 --ep 2"
# Paths of the engine's administration that answer at once.
HARMLESS = {
    "sglang": ("/server_info", "/openapi.json", "/of-a-newer-version"),
    "vllm": ("/server_info",),
    "lmdeploy": ("/is_sleeping",),
}


def table() -> dict[str, list[set[str]]]:
    """The paths of each row of the page, by the columns of LEVELS."""
    header = f"| engine | {' | '.join(LEVELS)} |"
    rows = SECURITY.read_text(encoding="utf-8").partition(header)[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {name: [set(re.findall(r"`([^`]+)`", cell)) for cell in more] for name, *more in cells}


def level(server: Served, path: str, method: str, port: int) -> int:
    """The column of LEVELS that a route belongs to."""
    asked = "GET" if method == "MOUNT" else method
    if server.ask(path, None, method=asked, port=port) not in REFUSED:
        return 0
    assert server.ask(path, "sk-of-nobody", method=asked, port=port) == 401
    return 1 if server.ask(path, USER, method=asked, port=port) not in REFUSED else 2


def reached(server: Served, port: int) -> list[tuple[int, str]]:
    """Column and path of each route of the server at a port."""
    routes = [(path or "/", method) for path, method in server.routes[port]]
    return [
        (level(server, path, method, port), path)
        for path, method in routes
        if method not in ("HEAD", "OPTIONS")
    ]


def expect_row(name: str, found: Iterable[tuple[int, str]]) -> None:
    """The page has these paths in these columns, and no other."""
    columns = [{path for column, path in found if column == number} for number in range(len(LEVELS))]
    written = " | ".join(", ".join(f"`{path}`" for path in sorted(column)) for column in columns)
    assert table().get(name) == columns, f"write into {SECURITY}:\n| {name} | {written} |"


def listening(process: int) -> Iterator[tuple[str, int]]:
    """Address and port of each TCP socket on which a process of the session listens."""
    links = []
    for file in [file for its in session(process) for file in Path(f"/proc/{its}/fd").iterdir()]:
        with suppress(FileNotFoundError):  # it was closed since
            links.append(str(file.readlink()))
    for family in ("tcp", "tcp6"):
        for line in Path("/proc/net", family).read_text().splitlines()[1:]:
            _, local, _, state, *more = line.split()
            if state == "0A" and f"socket:[{more[5]}]" in links:
                address, _, port = local.partition(":")
                yield "127.0.0.1" if address.endswith("0100007F") else address, int(port, 16)


@pytest.mark.parametrize(
    ("row", "engine", "settings", "variables"),
    [
        ("SGLang", "sglang", "", {}),
        ("vLLM", "vllm", ARGUMENTS, ALL_OF_VLLM),
        ("LMDeploy", "lmdeploy", "", {}),
    ],
)
def test_the_page_has_each_route(
    row: str, engine: str, settings: str, variables: dict[str, str], tmp_path: Path
) -> None:
    with served(engine, tmp_path, settings, variables) as server:
        sockets = sorted(listening(server.process.pid))
        found = set(reached(server, PORT))
        for path in ("/v1/models", *HARMLESS[engine]):
            assert server.ask(path, ADMIN) not in REFUSED
        # Older Starlettes read a path from this header, and the engines' own checks the path from there.
        assert server.ask("/v1/models", None, Host="x/health?") in REFUSED
    assert ("127.0.0.1", PORT) in sockets
    elsewhere = [port for address, port in sockets if address != "127.0.0.1"]
    assert len(elsewhere) == (engine == "sglang") and all(22000 <= port < 30000 for port in elsewhere)
    expect_row(row, found)


def test_only_servers_of_lmdeploy_join_its_proxy(tmp_path: Path) -> None:
    with served("lmdeploy", tmp_path, DATA_PARALLEL, until_served="m") as server:
        node = json.dumps({"url": "http://192.0.2.66:1", "status": {"models": ["n"]}})
        for key, status in ((None, 401), (USER, 403)):
            assert server.ask("/nodes/add", key, method="POST", body=node) == status
        assert set(server.models()) == {"m"}
        found = set(reached(server, PORT))
        assert dict(reached(server, PORT + 1)).keys() == {0, 1, 2}
    expect_row("LMDeploy's proxy (`--dp`)", found)
