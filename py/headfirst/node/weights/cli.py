"""`headfirst-weights`: the node tools' command, alone or under a job that reads its progress and result."""

from __future__ import annotations

import re
import signal
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import EXTRAS, ON_NODES

from headfirst import __version__
from headfirst.common.errors import HeadfirstError
from headfirst.node.weights import commands
from headfirst.node.weights.progress import write_result
from headfirst.node.weights.sharing import MODES
from headfirst.node.weights.transfer.transport import CONNECTIONS

_EXAMPLES = """examples:
  headfirst-weights fetch deepseek-ai/DeepSeek-R1 /data/DeepSeek-R1 --from modelscope
  headfirst-weights convert /data/DeepSeek-R1 /data/DeepSeek-R1-bf16
  headfirst-weights verify /data/DeepSeek-R1-bf16 --deep
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command. Exit codes: 0 done, 1 failed, 2 wrong input, 3 not ready, 130 Ctrl-C or SIGTERM."""
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        result = arguments.run(arguments)
    except (HeadfirstError, OSError) as error:
        failure = error if isinstance(error, HeadfirstError) else _system_error(error)
        sys.stderr.write(f"{failure}\n")
        with suppress(OSError):  # the disk may be full; what matters is reported already
            write_result({"msg": str(failure)})
        sys.exit(failure.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped. Run the same command again to continue.\n")
        sys.exit(130)
    write_result(result)


def _system_error(error: OSError) -> HeadfirstError:
    """A full disk, a missing permission and the like, with the file."""
    what = (error.strerror or str(error)).lower()
    return HeadfirstError(
        what, where=error.filename and str(error.filename), hint="Fix that, then run again."
    )


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        "headfirst-weights",
        description="Fetch, convert, distribute and verify a model's weights. All commands can be run again.",
        epilog=_EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=_version())
    add = parser.add_subparsers(required=True, metavar="COMMAND").add_parser

    fetch = add("fetch", help="fetch a model to this machine and verify it")
    fetch.add_argument("model", help="owner/name on a hub, or a folder")
    fetch.add_argument("directory", type=Path)
    fetch.add_argument("--token-file", type=Path, help="file of mode 0600 with the hub's token")
    _add_source(fetch)
    fetch.set_defaults(run=commands.run_fetch)

    convert = add("convert", help="make a BF16 copy of an FP8 or MXFP4 checkpoint")
    convert.add_argument("source", type=Path)
    convert.add_argument("target", type=Path)
    convert.add_argument("--threads", type=int, help="shards at a time (default: one per core)")
    convert.add_argument(
        "--drop-source", action="store_true", help="remove each source shard once nothing needs it any more"
    )
    convert.set_defaults(run=commands.run_convert)

    manifest = add("manifest", help="hash a checkpoint and write its manifest into it")
    manifest.add_argument("directory", type=Path)
    manifest.set_defaults(run=commands.run_manifest)

    verify = add("verify", help="verify a checkpoint against its manifest")
    verify.add_argument("directory", type=Path)
    verify.add_argument("--deep", action="store_true", help="read every file, also unchanged ones")
    verify.set_defaults(run=commands.run_verify)

    warm = add("warm", help="read a checkpoint into the page cache, as far as memory allows")
    warm.add_argument("directory", type=Path)
    warm.add_argument("--limit", type=int, help="most bytes to read")
    warm.add_argument("--reserve", type=int, default=0, help="bytes of memory to leave to others")
    warm.add_argument("--whole", action="store_true", help="read nothing unless all of it fits")
    warm.set_defaults(run=commands.run_warm)

    _add_cluster_commands(add)
    return parser


def _add_cluster_commands(add) -> None:  # type: ignore[no-untyped-def]  # argparse does not name this type
    """What the `weights` role runs on the nodes. The transfer's token is in HEADFIRST_TRANSFER_TOKEN."""
    pipeline = add(
        "pipeline", help="fetch, pass on, convert: one node's part of distributing a model to all nodes"
    )
    pipeline.add_argument("directory", type=Path, help="folder that the files arrive in")
    pipeline.add_argument(
        "--member",
        action="append",
        required=True,
        dest="members",
        help="the head first; addresses with commas between them",
    )
    pipeline.add_argument(
        "--signed-by",
        default="",
        metavar="KEY",
        help="what the head's signing-key prints",
    )
    pipeline.add_argument("--signing-key", type=Path, metavar="FILE", help="of the head, which signs")
    pipeline.add_argument("--address", required=True, help="which of the members this node is")
    pipeline.add_argument(
        "--layers",
        action="append",
        default=[],
        help="as in 0-30: what a member serves, once for each --member; '' is everything",
    )
    pipeline.add_argument("--hidden-layers", type=int, default=0, help="of the model; needed with --layers")
    pipeline.add_argument("--port", type=int, required=True)
    pipeline.add_argument(
        "--connections", type=int, default=CONNECTIONS, help="for files, to the member before"
    )
    pipeline.add_argument("--encrypt", action="store_true", help="TLS between the members")
    pipeline.add_argument("--convert-to", type=Path, help="folder of the BF16 copy")
    pipeline.add_argument("--keep-fp8", action="store_true", help="do not remove what is converted")
    pipeline.add_argument("--model", help="what is fetched; without it, the head's folder is complete")
    pipeline.add_argument("--fetch", choices=MODES, default="head", help="who fetches from a hub")
    _add_source(pipeline)
    pipeline.set_defaults(run=commands.run_pipeline)

    compiled = add("compiled", help="what ranks compiled: keep it, say that it is proven, or remove it")
    compiled.add_argument("action", choices=("take", "prove", "drop", "state", "prune"))
    compiled.add_argument(
        "names", nargs="+", help="`take`: of containers that serve; `prune`: what stays; else folders"
    )
    compiled.add_argument("--start", default="", help="`take`: the start of all ranks")
    compiled.add_argument("--image", default="", help="`state`: only what was compiled in this image")
    compiled.set_defaults(run=commands.run_compiled)

    signing_key = add("signing-key", help="print the public key of a transfer's head; makes the key once")
    signing_key.add_argument("file", type=Path, help="holds the private key, mode 0600; stays on the head")
    signing_key.set_defaults(run=commands.run_signing_key)

    in_place = add("in-place", help="verify a folder that Headfirst did not write, and serve it in place")
    in_place.add_argument("directory", type=Path, help="the folder; nothing is written into it")
    in_place.add_argument("link", type=Path, help="the path that is served; becomes a link to the folder")
    in_place.add_argument("--pinned", help="what the head's folder holds, as `status` reports it")
    in_place.add_argument(
        "--seen-elsewhere", type=Path, help="manifest of a node that has read these same files; reads none"
    )
    in_place.set_defaults(run=commands.run_in_place)

    status = add("status", help="print as JSON what is there, without reading weights")
    status.add_argument("--served-dir", type=Path, required=True)
    status.add_argument(
        "--source-dir", type=Path, help="folder of the FP8 copy, where the served one is made of it"
    )
    status.add_argument("--model", required=True, help="the model that should be there")
    status.add_argument(
        "--layers", default="", help="as in 0-30: what this node serves (default: everything)"
    )
    status.add_argument("--address", required=True, help="handed on")
    status.add_argument("--is-head", action="store_true", help="a model that is a folder is stored here")
    _add_source(status)
    status.set_defaults(run=commands.run_status)


def _add_source(parser: ArgumentParser) -> None:
    parser.add_argument("--from", dest="source", choices=list(ON_NODES), default="huggingface")
    parser.add_argument("--revision", default="", help="branch, tag or commit")


def _version() -> str:
    """The installed version with the extras that are there, e.g. `0.1.0+h1a2b3c4d5e6f huggingface`."""
    modules = {name: re.split(r"\W", package)[0] for name, package in EXTRAS.items()}
    return " ".join([__version__, *(name for name, module in modules.items() if find_spec(module))])
