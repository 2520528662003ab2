"""The program that comm_check runs in the engine's image, over NCCL: one rank for each GPU here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

Results = dict[str, Any]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_all_reduces_over_nccl_and_in_a_graph(torch: Any, results: Results, tmp_path: Path) -> None:
    program = Path(__file__).parents[2] / "roles" / "comm_check" / "files" / "comm"
    result = tmp_path / "result.json"
    gpus = torch.cuda.device_count()
    command = [
        *(sys.executable, str(program), "--node", "0", "--nodes", "1", "--ranks-per-node", str(gpus)),
        *("--head", "127.0.0.1", "--port", str(free_port()), "--seconds", "30", "--backends", "nccl"),
    ]  # fmt: skip
    variables = {"HEADFIRST_RESULT_FILE": str(result), "NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "lo"}
    subprocess.run(command, env=os.environ | variables, check=True, timeout=200)
    found = json.loads(result.read_text())["comm"]
    (run,) = found["runs"] or [{"rows": []}]
    rows = [{key: row[key] for key in ("bytes", "seconds", "busbw", "wrong", "graph")} for row in run["rows"]]
    versions = [
        line.partition("NCCL version")[2].strip() for line in found["nccl_log"] if "NCCL version" in line
    ]
    results["comm"] = {
        "ranks": gpus,
        "rows": rows,
        "nccl": sorted(set(versions)),
        "errors": len(found["errors"]),
    }
    assert found["errors"] == []
    assert rows
    assert not [row for row in rows if row["wrong"]]
    assert [row for row in rows if row["graph"]]
    assert versions
