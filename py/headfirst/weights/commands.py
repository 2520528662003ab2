"""What each command of `headfirst-weights` does; each returns the result that a job hands on."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from pathlib import Path

from headfirst.errors import HeadfirstError, InputError
from headfirst.weights import manifest as manifests
from headfirst.weights.checkpoint_check import check_checkpoint
from headfirst.weights.conversion import Conversion
from headfirst.weights.convert import convert
from headfirst.weights.fetch import Request, fetch
from headfirst.weights.fetch_origin import FetchOrigin
from headfirst.weights.files import STATE_FOLDER, gigabytes, list_files
from headfirst.weights.manifest import MANIFEST, Manifest
from headfirst.weights.origin import FolderOrigin, Origin
from headfirst.weights.pipeline import Pipeline, Transfer
from headfirst.weights.progress import Progress
from headfirst.weights.status import look, pinned_now
from headfirst.weights.verify import verify

Result = dict[str, object]

_HUB_TOKENS = {"huggingface": "HF_TOKEN", "modelscope": "MODELSCOPE_API_TOKEN"}


def run_fetch(arguments: Namespace) -> Result:
    """Fetch a model."""
    if arguments.token_file:
        os.environ[_HUB_TOKENS[arguments.source]] = _secret(arguments.token_file)
    request = Request(arguments.source, arguments.model, arguments.revision)
    manifest, changed = fetch(request, arguments.directory)
    return _say(manifest, changed, arguments.directory)


def run_convert(arguments: Namespace) -> Result:
    """Convert FP8 to BF16."""
    manifest, changed = convert(
        arguments.source, arguments.target, arguments.threads, keep_source=not arguments.drop_source
    )
    return _say(manifest, changed, arguments.target)


def run_manifest(arguments: Namespace) -> Result:
    """Write a manifest of what is there."""
    folder: Path = arguments.directory
    check_checkpoint(folder)
    (folder / STATE_FOLDER).mkdir(exist_ok=True)
    before = manifests.load(folder)
    names = [name for name in list_files(folder) if name != MANIFEST]
    with Progress("hash") as progress:
        manifest = manifests.build(folder, names, before.origin if before else {}, progress)
    manifests.save(folder, manifest)
    return _say(manifest, manifest != before, folder)


def run_verify(arguments: Namespace) -> Result:
    """Prove a folder against its manifest."""
    return _say(verify(arguments.directory, deep=arguments.deep), False, arguments.directory)


def run_pipeline(arguments: Namespace) -> Result:
    """Take part in bringing a model to all members."""
    members: list[str] = arguments.members
    if arguments.address not in members:
        raise InputError(f"{arguments.address} is none of the members {', '.join(members)}")
    transfer = Transfer(
        members,
        members.index(arguments.address),
        arguments.port,
        _token() if len(members) > 1 else "",
        arguments.sessions,
    )
    folder: Path = arguments.directory
    request = Request(arguments.source, arguments.model or "", arguments.revision)
    target: Path | None = arguments.convert_to
    origin: Origin | None = None
    if transfer.index == 0 and arguments.model:
        origin = FetchOrigin(request, folder, target, keep_source=arguments.keep_fp8)
    elif transfer.index == 0:
        origin = FolderOrigin()
    pipeline = Pipeline(
        transfer,
        folder,
        origin=origin,
        conversion=Conversion(folder, target) if target else None,
        keep_source=arguments.keep_fp8,
    )
    outcome = pipeline.run()
    traffic = {"sent": outcome.traffic.sent, "received": outcome.traffic.received}
    return _say(outcome.manifest, outcome.changed, target or folder) | traffic


def run_status(arguments: Namespace) -> Result:
    """Say what is served here, and whether it is what should be; what is wrong with the model is `error`."""
    request = Request(arguments.source, arguments.model, arguments.revision)
    result: Result = {
        "address": arguments.address,
        **look(request, arguments.served_dir, arguments.source_dir),
    }
    if arguments.is_head:
        try:
            result["asked"] = pinned_now(request)
        except HeadfirstError as error:
            result["error"] = str(error)
    print(json.dumps(result))
    return result


def _say(manifest: Manifest, changed: bool, folder: Path) -> Result:
    print(f"{folder}: {len(manifest.files)} files, {gigabytes(manifest.size)}, digest {manifest.digest[:16]}")
    return {"changed": changed, "digest": manifest.digest}


def _token() -> str:
    """The transfer's secret, which both ends have in the environment."""
    token = os.environ.get("HEADFIRST_TRANSFER_TOKEN", "")
    if not token:
        raise InputError("HEADFIRST_TRANSFER_TOKEN is not set", hint="Both ends need the same secret in it.")
    return token


def _secret(path: Path) -> str:
    """The one line of a file that only its owner can read."""
    if path.stat().st_mode & 0o077:
        raise InputError("others can read this file", where=str(path), hint=f"chmod 600 {path}")
    return path.read_text().strip()
