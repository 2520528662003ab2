"""What each command of `headfirst-weights` does; each returns the result that a job hands on."""

from __future__ import annotations

import json
import os
import re
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import FOLDER, HUBS

from headfirst.common.errors import HeadfirstError, InputError
from headfirst.node.weights import compile_cache
from headfirst.node.weights.convert.conversion import Conversion
from headfirst.node.weights.convert.convert_folder import convert
from headfirst.node.weights.fetch.fetch_run import fetch
from headfirst.node.weights.fetch.fetching import FetchRequest
from headfirst.node.weights.fetch_origin import FetchOrigin
from headfirst.node.weights.files import STATE_FOLDER, gigabytes, list_files
from headfirst.node.weights.in_place import use_in_place
from headfirst.node.weights.layers import FileNeeds, read_layers
from headfirst.node.weights.origin import FolderOrigin, Origin
from headfirst.node.weights.pipeline import Pipeline
from headfirst.node.weights.progress import WeightsProgress
from headfirst.node.weights.proof import manifest as manifests
from headfirst.node.weights.proof.checkpoint_check import check_checkpoint
from headfirst.node.weights.proof.manifest import MANIFEST, Manifest
from headfirst.node.weights.proof.proofs import Proofs
from headfirst.node.weights.proof.verify import verify
from headfirst.node.weights.status import look, pinned_now
from headfirst.node.weights.transfer.signing import Key
from headfirst.node.weights.transfer.transport import Transfer
from headfirst.node.weights.warm import available_memory, choose, warm

Result = dict[str, object]

_PUBLIC_KEY = re.compile(r"[0-9a-f]{64}")


def run_fetch(arguments: Namespace) -> Result:
    """Fetch a model."""
    if arguments.token_file:
        if arguments.source not in HUBS:
            raise InputError("--token-file is for a hub", hint=f"Leave it out, or --from {'|'.join(HUBS)}")
        os.environ[HUBS[arguments.source].token_variable] = _secret(arguments.token_file)
    request = FetchRequest(arguments.source, arguments.model, arguments.revision)
    manifest, changed = fetch(request, arguments.directory)
    return _result(manifest, changed, arguments.directory)


def run_convert(arguments: Namespace) -> Result:
    """Convert a quantised checkpoint to BF16."""
    manifest, changed = convert(
        arguments.source, arguments.target, arguments.threads, keep_source=not arguments.drop_source
    )
    return _result(manifest, changed, arguments.target)


def run_manifest(arguments: Namespace) -> Result:
    """Write a manifest of what is there."""
    folder: Path = arguments.directory
    check_checkpoint(folder)
    (folder / STATE_FOLDER).mkdir(exist_ok=True)
    before = manifests.load(folder)
    names = [name for name in list_files(folder) if name != MANIFEST]
    with WeightsProgress("hash", sum((folder / name).stat().st_size for name in names)) as progress:
        Proofs(folder).prove(names, progress.add)
    manifest = manifests.build(folder, names, before.origin if before else {})
    return _result(manifest, manifests.save(folder, manifest), folder)


def run_verify(arguments: Namespace) -> Result:
    """Prove a folder against its manifest."""
    return _result(verify(arguments.directory, deep=arguments.deep), False, arguments.directory)


def run_in_place(arguments: Namespace) -> Result:
    """Serve a folder where it is."""
    request = FetchRequest(FOLDER.name, str(arguments.directory))
    seen = arguments.seen_elsewhere
    manifest, changed = use_in_place(
        arguments.directory,
        arguments.link,
        {**request.origin, "pinned": arguments.pinned or pinned_now(request)},
        manifests.parse(seen.read_bytes(), str(seen)) if seen else None,
    )
    return _result(manifest, changed, arguments.link)


def run_warm(arguments: Namespace) -> Result:
    """Read a checkpoint into the page cache, as far as memory allows."""
    room = available_memory() - arguments.reserve
    if arguments.limit is not None:
        room = min(room, arguments.limit)
    warming = choose(arguments.directory, max(0, room), whole=arguments.whole)
    warm(arguments.directory, warming)
    print(
        f"{arguments.directory}: {gigabytes(warming.size)} of {gigabytes(warming.total)} in the page cache; "
        f"there was room for {gigabytes(max(0, room))}"
    )
    return {"changed": False, "warmed": warming.size, "size": warming.total, "room": max(0, room)}


def run_compiled(arguments: Namespace) -> Result:
    """Keep what ranks compiled, say of it that it is proven, or remove it."""
    if arguments.action == "take":
        folders = [compile_cache.take(name, arguments.start) for name in arguments.names]
        return {"changed": any(folders), "taken": all(folders)}
    if arguments.action == "prune":
        compile_cache.prune(arguments.names)
        return {"changed": False}
    for folder in map(Path, arguments.names):
        if arguments.action == "state":
            print(compile_cache.state(folder, arguments.image))
        else:
            (compile_cache.prove if arguments.action == "prove" else compile_cache.drop)(folder)
    return {"changed": arguments.action != "state"}


def run_pipeline(arguments: Namespace) -> Result:
    """Take part in bringing a model to all members."""
    members: list[tuple[str, ...]] = [tuple(member.split(",")) for member in arguments.members]
    addresses = tuple(arguments.address.split(","))
    if addresses not in members:
        raise InputError(f"{arguments.address} is not one of the members {', '.join(arguments.members)}")
    if len({len(member) for member in members}) > 1:
        raise InputError(
            "the members have different numbers of addresses", where=", ".join(arguments.members)
        )
    transfer = Transfer(
        members,
        members.index(addresses),
        arguments.port,
        _token() if len(members) > 1 else "",
        _key(arguments, is_head=addresses == members[0]) if len(members) > 1 else Key.new(),
        arguments.connections,
        encrypt=arguments.encrypt,
    )
    folder: Path = arguments.directory
    request = FetchRequest(arguments.source, arguments.model or "", arguments.revision)
    target: Path | None = arguments.convert_to
    ranges = [read_layers(text) for text in arguments.layers]
    if ranges and (len(ranges) != len(members) or not arguments.hidden_layers):
        raise InputError("--layers is given once for each --member, with --hidden-layers")
    needs = FileNeeds(
        transfer.index, len(members), ranges, arguments.hidden_layers, converts=target is not None
    )
    origin: Origin | None = None
    if transfer.index == 0 and arguments.model:
        needs.keeps_all = request.is_for(folder)
        origin = FetchOrigin(
            request, folder, target, keep_source=arguments.keep_fp8, needs=needs, mode=arguments.fetch
        )
    elif transfer.index == 0:
        needs.keeps_all = True
        origin = FolderOrigin(folder)
    shares = transfer.index > 0 and arguments.model and arguments.fetch != "head" and request.source in HUBS
    pipeline = Pipeline(
        transfer,
        folder,
        origin=origin,
        needs=needs,
        helps=request if shares else None,
        conversion=Conversion(folder, target) if target else None,
        keep_source=arguments.keep_fp8,
    )
    outcome = pipeline.run()
    return _result(outcome.manifest, outcome.changed, target or folder) | asdict(outcome.traffic)


def run_status(arguments: Namespace) -> Result:
    """Report what is served here, and whether it is as planned; `error` is what is wrong with the model."""
    request = FetchRequest(arguments.source, arguments.model, arguments.revision)
    result: Result = {
        "address": arguments.address,
        **look(request, arguments.served_dir, arguments.source_dir, read_layers(arguments.layers)),
    }
    if arguments.is_head:
        try:
            result["asked"] = pinned_now(request)
        except HeadfirstError as error:
            result["error"] = str(error)
    print(json.dumps(result))
    return result


def _result(manifest: Manifest, changed: bool, folder: Path) -> Result:
    print(f"{folder}: {len(manifest.files)} files, {gigabytes(manifest.size)}, digest {manifest.digest[:16]}")
    return {"changed": changed, "digest": manifest.digest, "whole": manifest.whole}


def run_signing_key(arguments: Namespace) -> Result:
    """Print the public half of the head's key, made where there is none."""
    public = Key.of_file(arguments.file, make=True).public
    print(public)
    return {"changed": False, "public": public}


def _key(arguments: Namespace, *, is_head: bool) -> Key:
    """The transfer's key; the head's with its private half."""
    if not _PUBLIC_KEY.fullmatch(arguments.signed_by):
        raise InputError(
            "--signed-by is not the public key of the transfer's head",
            hint="On the head: headfirst-weights signing-key FILE",
        )
    if not is_head:
        return Key(arguments.signed_by)
    if arguments.signing_key is None:
        raise InputError("the head of a transfer needs --signing-key FILE")
    key = Key.of_file(arguments.signing_key)
    if key.public != arguments.signed_by:
        raise InputError("--signed-by is another key's", where=str(arguments.signing_key))
    return key


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
