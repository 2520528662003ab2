"""Folders on the head, described over SSH: a model's small files and headers, an adapter's config."""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from headfirst.common.checkpoint_files import is_checkpoint_file
from headfirst.common.errors import HeadfirstError, NotReadyError
from headfirst.common.safetensors_file import HEADER_LIMIT
from headfirst.common.untrusted import UntrustedError, file_listing, integer, json_document, shown
from headfirst.control.checkpoints import adapter, chat_template
from headfirst.control.checkpoints.folder import INDEX, MODULES, QUANTIZATION, describe_folder
from headfirst.control.live.ssh_access.ssh import run_privileged, ssh
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.model.adapter import AdapterConfig
from headfirst.decide.model.checkpoint import Checkpoint

# Headers of a large model's shards on a slow share take a while.
_TIMEOUT_S = 300.0

# Headers of the largest models are some 30 MB together.
_MAX_ANSWER = 128 << 20
_MAX_FILE = 1 << 42
_DESCRIBED = ("config.json", adapter.CONFIG, INDEX, QUANTIZATION, MODULES, *chat_template.FILES)

# What engines read beside the weights: documents, tokenizers, templates, Python files.
_SMALL = ("*.jinja", "*.json", "*.model", "*.py", "*.tiktoken", "*.txt")
# The folder, then patterns of the files that are read whole.
_READ = f"""
import base64, fnmatch, json, pathlib, struct, sys
files = {{}}
folder = pathlib.Path(sys.argv[1])
for path in sorted(folder.iterdir()) if folder.is_dir() else []:
    with path.open("rb") if path.is_file() else open("/dev/null", "rb") as file:
        if any(fnmatch.fnmatchcase(path.name, pattern) for pattern in sys.argv[2:]):
            head = file.read()
        elif path.suffix == ".safetensors":
            head = file.read(8)
            if len(head) == 8:
                head += file.read(min(struct.unpack("<Q", head)[0], {HEADER_LIMIT}))
        else:
            continue
    files[path.name] = [path.stat().st_size, base64.b64encode(head).decode()]
print(json.dumps(files))
"""


def describe_on_head(head: HostAccess, folder: str) -> Checkpoint:
    """Describe the model in `folder` on the head. Raises what describe_folder raises, naming the host."""
    with _mirrored(head, folder) as mirror:
        return describe_folder(mirror, id=folder)


def adapter_on_head(head: HostAccess, folder: str) -> AdapterConfig:
    """Describe the LoRA adapter in `folder` on the head. Raises as adapter.parse does."""
    with _mirrored(head, folder) as mirror:
        return adapter.read_folder(mirror)


def files_on_head(head: HostAccess, folder: str) -> dict[str, bytes]:
    """The small files that engines read of a model in the folder on the head."""
    found = _read(head, folder, _SMALL)
    return {
        name: content
        for name, (_, content) in found.items()
        if _is_read(name, _SMALL) and is_checkpoint_file(name)
    }


def _read(head: HostAccess, folder: str, patterns: Collection[str]) -> dict[str, tuple[int, bytes]]:
    """Size and content of the files that match, and of the safetensors files with their headers."""
    words = ("python3", "-c", _READ, folder, *patterns)
    with ssh(head) as connection:
        answer = run_privileged(head, connection, *words, timeout=_TIMEOUT_S, limit=_MAX_ANSWER)
    if answer.code != 0:
        reason = (answer.err.strip().splitlines() or ["no reason given"])[-1]
        raise NotReadyError(f"the folder {folder} cannot be read: {reason}", where=head.host)
    return _files(answer.out, patterns, where=head.host)


@contextmanager
def _mirrored(head: HostAccess, folder: str) -> Iterator[Path]:
    """A folder like that on the head, of which only the sizes, the small files and the headers are read."""
    files = _read(head, folder, _DESCRIBED)
    with tempfile.TemporaryDirectory() as scratch:
        mirror = Path(scratch) / "model"
        if files:
            mirror.mkdir()
        for name, (size, content) in files.items():
            with (mirror / name).open("wb") as file:
                file.write(content)
                file.truncate(size)  # sparse
        try:
            yield mirror
        except HeadfirstError as error:
            error.what = error.what.replace(str(mirror), folder)
            error.where = f"{head.host}:{(error.where or folder).replace(str(mirror), folder)}"
            raise


def _files(answer: str, patterns: Collection[str], *, where: str) -> dict[str, tuple[int, bytes]]:
    """Size and first bytes of each file by its name in the folder, from what the host has sent."""
    what = "the list of the model folder"
    listed = json_document(answer, what=what, where=where, limit=_MAX_ANSWER, depth=2)
    if not isinstance(listed, dict):
        raise UntrustedError(f"{what} is not an object", where=where)
    return {
        name: _file(name, listed[name], patterns, where=where) for name in file_listing(listed, where=where)
    }


def _file(name: str, entry: object, patterns: Collection[str], *, where: str) -> tuple[int, bytes]:
    if "/" in name or not (_is_read(name, patterns) or name.endswith(".safetensors")):
        raise UntrustedError(
            f"the list of the model folder has an unexpected file: {shown(name)}", where=where
        )
    if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[1], str):
        raise UntrustedError(f"the host does not describe {shown(name)} as size and content", where=where)
    size = integer(entry[0], what=f"the size of {shown(name)}", where=where, high=_MAX_FILE)
    try:
        content = base64.b64decode(entry[1], validate=True)
    except (binascii.Error, ValueError):
        raise UntrustedError(f"the content of {shown(name)} is not base64", where=where) from None
    if len(content) > size:
        raise UntrustedError(f"{shown(name)} is sent with more bytes than it has", where=where)
    return size, content


def _is_read(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
