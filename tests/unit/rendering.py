"""Plans to render, and rendered scripts that run with recorded programs in place of the real ones."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from headfirst.control.deployment.prepare import prepare
from headfirst.decide.containers.blanks import Text
from headfirst.decide.containers.spec import Container
from headfirst.decide.plan.types import Plan
from headfirst.decide.render.files import Files

ROOT = Path(__file__).resolve().parents[2]
HEADER = ["Made by Headfirst 0; for a test"]
# What a shell, YAML and Compose could misunderstand.
ODD = [
    "it's",
    'a "quoted" word',
    "$HOME",
    "$(id)",
    "`id`",
    "a\nb",
    "中文",
    "*",
    "~",
    "!",
    "back\\slash",
    "",
    "# x",
    "{a: b}",
]


def sample(field: str) -> Any:
    """A value of the field's type that no plan has."""
    kind = Container.model_fields[field].annotation
    if isinstance(kind, UnionType):
        kind = next(one for one in get_args(kind) if one is not type(None))
    if get_origin(kind) is Literal:
        return get_args(kind)[-1]
    if get_origin(kind) is dict:
        return {"nofile": 65_537} if get_args(kind)[1] is int else {"an.option": "a value"}
    return {bool: False, int: 65_537, str: "17g", list[str]: ["/dev/zz:/dev/zz"]}[kind]


@cache
def planned(inventory: str, *settings: str) -> Plan:
    return prepare([ROOT / "inventories" / inventory], settings, probe=False).plan


def with_words(plan: Plan, words: Sequence[str]) -> Plan:
    """The plan with more words at the end of every rank's command, and in its environment."""
    service = plan.services[0]
    environment = {f"ODD_{number}": word for number, word in enumerate(words)}
    replica, scheduled = service.replicas[0], service.scheduled[0]
    nodes = [
        node.model_copy(
            update={
                "container": node.container.model_copy(
                    update={
                        "command": [*node.container.command, *words],
                        "environment": node.container.environment | environment,
                    }
                )
            }
        )
        for node in replica.nodes
    ]
    more: list[Text] = list(words)
    ranks = [
        rank.model_copy(
            update={"command": [*rank.command, *more], "environment": rank.environment | environment}
        )
        for rank in scheduled.ranks
    ]
    changed = service.model_copy(
        update={
            "replicas": [replica.model_copy(update={"nodes": nodes})],
            "scheduled": [scheduled.model_copy(update={"ranks": ranks})],
        }
    )
    return plan.model_copy(update={"services": [changed]})


def model_in(folder: Path, plan: Plan) -> None:
    """A model folder that passes the check, where the plan has it; `folder` must hold it."""
    for service in plan.services:
        directory = Path(service.weights.directory)
        assert directory.is_relative_to(folder)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text("{}")
        index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
        for shard in index["weight_map"].values():
            (directory / shard).write_text("x")


def put(files: Files, folder: Path) -> None:
    """The files in a folder, with their modes."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in files.items():
        (folder / name).write_text(file.text)
        (folder / name).chmod(file.mode)


class Programs:
    """A folder for PATH. A recorded program writes its arguments and environment, and exits 0."""

    def __init__(self, folder: Path) -> None:
        self.bin, self._records = folder / "bin", folder / "records"
        self.bin.mkdir(parents=True)
        self._records.mkdir()

    def add(self, name: str, script: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{script}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def record(self, name: str, script: str = "exit 0\n") -> None:
        code = (
            "import json, os, sys; "
            f"json.dump([sys.argv[1:], dict(os.environ)], open('{self._records}/{name}-' + sys.argv[1], 'w'))"
        )
        self.add(
            name,
            f"number=$(ls {self._records} | wc -l)\n"
            f'{sys.executable} -IS -c "{code}" "$(printf %03d "$number")-$$" "$@"\n{script}',
        )

    def records(self, name: str) -> list[tuple[list[str], dict[str, str]]]:
        """(arguments, environment) of every start, in order."""
        found = []
        for path in sorted(self._records.glob(f"{name}-*")):
            arguments, environment = json.loads(path.read_text())
            found.append((arguments[1:], environment))
        return found

    def run(
        self, *argv: object, cwd: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        path = {"PATH": f"{self.bin}:{os.environ['PATH']}"}
        return subprocess.run(
            [str(word) for word in argv],
            cwd=cwd,
            env={**os.environ, **path, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


def values(text: str) -> dict[str, Any]:
    """KEY=VALUE lines."""
    return dict(line.split("=", 1) for line in text.splitlines())
