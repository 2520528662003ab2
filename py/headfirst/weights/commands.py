"""What each command of `headfirst-weights` does; each returns the result that a job hands on."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from pathlib import Path

from headfirst.errors import HeadfirstError, InputError
from headfirst.weights import manifest as manifests
from headfirst.weights.checkpoint_check import check_checkpoint
from headfirst.weights.convert import convert
from headfirst.weights.fetch import Request, fetch, is_current
from headfirst.weights.files import STATE_FOLDER, gigabytes, list_files
from headfirst.weights.manifest import MANIFEST, Manifest
from headfirst.weights.progress import Progress
from headfirst.weights.receive import receive
from headfirst.weights.serve import serve
from headfirst.weights.verify import unchanged, verify

Result = dict[str, object]

_HUB_TOKENS = {"huggingface": "HF_TOKEN", "modelscope": "MODELSCOPE_API_TOKEN"}


def run_fetch(arguments: Namespace) -> Result:
    """Fetch a model."""
    if arguments.token_file:
        os.environ[_HUB_TOKENS[arguments.source]] = _secret(arguments.token_file)
    request = Request(arguments.source, arguments.model, arguments.revision)
    manifest, changed = fetch(request, arguments.directory, will_convert=arguments.will_convert)
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


def run_serve(arguments: Namespace) -> Result:
    """Serve a folder to peers."""
    serve(
        arguments.directory,
        arguments.address,
        arguments.port,
        arguments.peers,
        _token(),
        arguments.idle_limit,
    )
    return {"changed": False}


def run_receive(arguments: Namespace) -> Result:
    """Pull a folder from a peer."""
    manifest, changed = receive(
        arguments.url, arguments.directory, _token(), arguments.digest, will_convert=arguments.will_convert
    )
    return _say(manifest, changed, arguments.directory)


def run_status(arguments: Namespace) -> Result:
    """Say what is there: a digest is "" where a folder is incomplete or was touched since it was proven.

    What is wrong with the model's own folder is part of what is said, as `error`.
    """
    source, served = _proven(arguments.source_dir), _proven(arguments.served_dir)
    result: Result = {"changed": False, "source": source.digest if source else "", **_served(served)}
    if arguments.model:
        request = Request(arguments.source, arguments.model, arguments.revision)
        try:
            result["current"] = is_current(request, arguments.source_dir)
        except HeadfirstError as error:
            result |= {"current": False, "error": str(error)}
    print(json.dumps(result))
    return result


def _proven(folder: Path) -> Manifest | None:
    manifest = manifests.load(folder)
    return manifest if manifest and unchanged(folder, manifest) else None


def _served(manifest: Manifest | None) -> Result:
    """What the hosts compare with each other; 16 digits of each file's hash name the file that differs."""
    if manifest is None:
        return {"digest": "", "converted_from": "", "files": {}}
    files = {name: record.xxh3[:16] for name, record in manifest.files.items()}
    return {
        "digest": manifest.digest,
        "converted_from": manifest.origin.get("converted_from", ""),
        "files": files,
    }


def _say(manifest: Manifest, changed: bool, folder: Path) -> Result:
    print(f"{folder}: {len(manifest.files)} files, {gigabytes(manifest.size)}, digest {manifest.digest[:16]}")
    return {"changed": changed, **_served(manifest)}


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
