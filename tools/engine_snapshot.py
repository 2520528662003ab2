#!/usr/bin/env python3
"""Writes snapshot.json of an engine: what its probe answers, in the environment of tests/engines.

Usage: python tools/engine_snapshot.py ENGINE [VERSION]
With VERSION, the lock of tests/engines/ENGINE gets that version first. No GPU is needed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import image_locks

sys.path[:0] = [str(image_locks.TESTS / "engines")]

import engine_sites  # noqa: E402  # of the tests, which have the environment


def document(engine: str) -> dict[str, Any]:
    """What the snapshot has of the probe's answer; SystemExit where a part of it is missing."""
    told = engine_sites.probe(engine, {"answers": True})["answers"]
    if told["unanswered"]:
        raise SystemExit("\n".join(f"{part}: {why}" for part, why in told["unanswered"].items()))
    return {key: told[key] for key in ("engine", "version", "options", "support")}


def text(told: Mapping[str, Any]) -> str:
    """The snapshot as JSON, a line for each option and each row of a long table."""
    options = ",\n".join(f"  {json.dumps(option)}" for option in told["options"])
    tables = ",\n".join(_table(name, table) for name, table in told["support"].items())
    head = "".join(f" {json.dumps(key)}: {json.dumps(told[key])},\n" for key in ("engine", "version"))
    return f'{{\n{head} "options": [\n{options}\n ],\n "support": {{\n{tables}\n }}\n}}\n'


def _table(name: str, table: Any) -> str:
    if not isinstance(table, dict) or len(table) < 10:
        return f"  {json.dumps(name)}: {json.dumps(table)}"
    rows = ",\n".join(f"   {json.dumps(key)}: {json.dumps(row)}" for key, row in table.items())
    return f"  {json.dumps(name)}: {{\n{rows}\n  }}"


def main() -> int:
    """Write the snapshot, and report."""
    engine, *version = sys.argv[1:]
    if version:
        image_locks.write(dict([image_locks.engine_list(engine, *version)]))
    told = document(engine)
    path = image_locks.PACKAGE / "decide" / "engines" / engine / "snapshot.json"
    path.write_text(text(told), encoding="utf-8")
    print(f"{path}: {told['version']}, {len(told['options'])} options")
    return 0


if __name__ == "__main__":
    sys.exit(main())
