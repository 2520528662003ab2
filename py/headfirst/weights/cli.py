"""`headfirst-weights`: the node tools' command, alone or under a job that reads its progress and result."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from headfirst import __version__
from headfirst.errors import HeadfirstError
from headfirst.weights import commands
from headfirst.weights.fetch import SOURCES
from headfirst.weights.progress import write_result

_EXAMPLES = """examples:
  headfirst-weights fetch deepseek-ai/DeepSeek-R1 /data/DeepSeek-R1 --from modelscope
  headfirst-weights convert /data/DeepSeek-R1 /data/DeepSeek-R1-bf16
  headfirst-weights verify /data/DeepSeek-R1-bf16 --deep
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command. Exit codes: 0 done, 1 failed, 2 wrong input, 3 not ready, 130 stopped by Ctrl-C."""
    arguments = _parser().parse_args(argv)
    try:
        result = arguments.run(arguments)
    except (HeadfirstError, OSError) as error:
        failure = error if isinstance(error, HeadfirstError) else _system_error(error)
        write_result({"msg": str(failure)})
        sys.stderr.write(f"{failure}\n")
        sys.exit(failure.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped. Run the same command again to continue.\n")
        sys.exit(130)
    write_result(result)


def _system_error(error: OSError) -> HeadfirstError:
    """A full disk, a missing permission and the like, with the file."""
    what = (error.strerror or str(error)).lower()
    return HeadfirstError(
        what, where=error.filename and str(error.filename), hint="Mend that, then run again."
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

    fetch = add("fetch", help="bring a model to this machine and prove it")
    fetch.add_argument("model", help="owner/name on a hub, or a folder")
    fetch.add_argument("directory", type=Path)
    fetch.add_argument("--from", dest="source", choices=SOURCES, default="huggingface")
    fetch.add_argument("--revision", default="", help="branch, tag or commit")
    fetch.add_argument("--token-file", type=Path, help="file of mode 0600 with the hub's token")
    _add_will_convert(fetch)
    fetch.set_defaults(run=commands.run_fetch)

    convert = add("convert", help="make a BF16 copy of an FP8 checkpoint")
    convert.add_argument("source", type=Path)
    convert.add_argument("target", type=Path)
    convert.add_argument("--threads", type=int, help="shards at a time (default: one per core)")
    convert.add_argument(
        "--drop-source", action="store_true", help="remove each FP8 shard once nothing needs it any more"
    )
    convert.set_defaults(run=commands.run_convert)

    manifest = add("manifest", help="hash a checkpoint and write its manifest into it")
    manifest.add_argument("directory", type=Path)
    manifest.set_defaults(run=commands.run_manifest)

    verify = add("verify", help="prove a checkpoint against its manifest")
    verify.add_argument("directory", type=Path)
    verify.add_argument("--deep", action="store_true", help="read every file, also unchanged ones")
    verify.set_defaults(run=commands.run_verify)

    _add_cluster_commands(add)
    return parser


def _add_cluster_commands(add) -> None:  # type: ignore[no-untyped-def]  # argparse does not name this type
    """What the `weights` role runs on the nodes. The transfer's token is in HEADFIRST_TRANSFER_TOKEN."""
    serve = add("serve", help="serve a checkpoint to peers until nobody asks any more")
    serve.add_argument("directory", type=Path)
    serve.add_argument("--address", required=True, help="this host's address on the data network")
    serve.add_argument("--port", type=int, required=True)
    serve.add_argument("--peer", action="append", required=True, dest="peers", help="address that may pull")
    serve.add_argument("--idle-limit", type=float, default=900, help="seconds")
    serve.set_defaults(run=commands.run_serve)

    receive = add("receive", help="pull a checkpoint from a node that serves it")
    receive.add_argument("url")
    receive.add_argument("directory", type=Path)
    receive.add_argument("--digest", required=True, help="digest of the manifest that must be served")
    _add_will_convert(receive)
    receive.set_defaults(run=commands.run_receive)

    status = add("status", help="say as JSON what is there, reading no weights")
    status.add_argument("--source-dir", type=Path, required=True)
    status.add_argument("--served-dir", type=Path, required=True)
    status.add_argument("--model", help="also say whether source-dir is this model")
    status.add_argument("--from", dest="source", choices=SOURCES, default="huggingface")
    status.add_argument("--revision", default="")
    status.set_defaults(run=commands.run_status)


def _add_will_convert(parser: ArgumentParser) -> None:
    parser.add_argument("--will-convert", action="store_true", help="also ask for the space of a BF16 copy")


def _version() -> str:
    """The installed version with the hub clients that are there, e.g. `0.1.0+h1a2b3c4d5e6f huggingface`."""
    hubs = {"huggingface": "huggingface_hub", "modelscope": "modelscope_hub"}
    return " ".join([__version__, *(hub for hub, module in hubs.items() if find_spec(module))])
