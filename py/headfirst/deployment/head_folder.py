"""A model folder on the head, described from here: its small files and its shards' headers, over SSH."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path

from headfirst.errors import HeadfirstError, NotReadyError
from headfirst.live.access import HostAccess
from headfirst.live.ssh import run_privileged, ssh
from headfirst.model.checkpoint import Checkpoint
from headfirst.model.folder import describe_folder

# Headers of a large model's shards on a slow share take a while.
_TIMEOUT_S = 300.0

_READ = """
import base64, json, pathlib, struct, sys
found = {}
folder = pathlib.Path(sys.argv[1])
for path in sorted(folder.iterdir()) if folder.is_dir() else []:
    with path.open("rb") if path.is_file() else open("/dev/null", "rb") as file:
        if path.name in ("config.json", "model.safetensors.index.json"):
            head = file.read()
        elif path.suffix == ".safetensors":
            head = file.read(8)
            if len(head) == 8:
                head += file.read(min(struct.unpack("<Q", head)[0], 100_000_000))
        else:
            continue
    found[path.name] = [path.stat().st_size, base64.b64encode(head).decode()]
print(json.dumps(found))
"""


def describe_on_head(head: HostAccess, folder: str) -> Checkpoint:
    """Describe the model in `folder` on the head. Raises what describe_folder raises, naming the host."""
    with ssh(head) as connection:
        answer = run_privileged(head, connection, "python3", "-c", _READ, folder, timeout=_TIMEOUT_S)
    if answer.code != 0:
        raise NotReadyError(
            f"the model folder {folder} cannot be read: {answer.err.strip().splitlines()[-1]}",
            where=head.host,
        )
    with tempfile.TemporaryDirectory() as scratch:
        mirror = Path(scratch) / "model"
        files: dict[str, tuple[int, str]] = json.loads(answer.out)
        if files:
            mirror.mkdir()
        for name, (size, content) in files.items():
            with (mirror / name).open("wb") as file:
                file.write(base64.b64decode(content))
                file.truncate(size)  # sparse: only sizes and headers are looked at
        try:
            return describe_folder(mirror, id=folder)
        except HeadfirstError as error:
            error.what = error.what.replace(str(mirror), folder)
            error.where = f"{head.host}:{(error.where or folder).replace(str(mirror), folder)}"
            raise
