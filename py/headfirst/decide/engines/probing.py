"""The program that asks an engine in its image: `python3 -c LOADER`, with its modules and a request on stdin.

The request is {"answers": whether to describe the engine, "commands": [{"argv": [...], "env": {...}}, ...],
"files": {path: text}}. The files are written first: all that the model's folder has but its weights, as an
engine refuses a method of quantisation whose own file is missing. The answer, one JSON object on stdout, has
under "answers" the document of answers.py, and under "commands" for each of them {"problem": the engine's
sentence or null, "seconds": s}, with "why" where it could not be asked, or {"read": false, "why": ...}.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

LOADER = """\
import json, sys, types
asked = json.load(sys.stdin)
for name, text in asked["modules"].items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name + ".py", "exec"), module.__dict__)
module.main(asked["request"])
"""


def program(engine_name: str) -> tuple[str, dict[str, str]]:
    """The loader, and the modules that it reads on stdin, in the order in which they import each other."""
    package = files(__package__)
    of_engine = sorted(
        file.name for file in (package / engine_name).iterdir() if file.name.startswith("probe_")
    )
    names = ["probe_tasks.py", *(f"{engine_name}/{name}" for name in of_engine), f"{engine_name}/probe.py"]
    return LOADER, {Path(name).stem: (package / name).read_text(encoding="utf-8") for name in names}
