"""A model from its hub to all nodes, fetched by all of them: over what their lines can do.

Usage: python benchmarks/fetch_all.py [--nodes 4] [--line-rate 100mbit] [--network-rate 400mbit] [--size 1.0]

Needs root: nodes are network namespaces on one shaped LAN. In one run, one after the other:
  own lines     every node has a line of --line-rate to the hub; `all` and `auto`, over size / (nodes x line)
  shared line   all nodes share one such line; `head`, `all` and `auto`, over what `head` alone takes there
Aims: 1.15 for `all` with own lines, 1.05 for `auto` on a shared line; the plan predicts `all` within 15 %.
Every copy is hashed in the end. Folders lie in memory unless --folder says otherwise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "py"))
from broadcast import make_checkpoint
from headfirst.decide.plan.weights.duration import LINE_PAYLOAD
from headfirst.node.weights.proof.manifest import load
from transfer_site import MODEL, WEIGHTS, Cost, Site, end_on_sigterm
from transfers import signing

PORT = "7600"
LIMIT_S = 900.0


def run(site: Site, nodes: int, mode: str) -> Cost:
    """All nodes bring the model, and remove it again."""
    members = [f"--member={address}" for address in site.addresses]
    folders = [site.home(index) / "model" for index in range(nodes)]
    options = [*members, "--port", PORT, "--model", MODEL, "--fetch", mode]
    places = [
        [*signing(site.home(0).parent, index), "--address", site.addresses[index]] for index in range(nodes)
    ]
    cost = site.measure(
        {
            index: [*WEIGHTS, "pipeline", str(folder), *options, *places[index]]
            for index, folder in enumerate(folders)
        }
    )
    manifests = [load(folder) for folder in folders]
    if len({manifest.digest if manifest else "" for manifest in manifests}) != 1 or not manifests[0]:
        sys.exit("the copies differ")
    for folder in folders:
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    return cost


def rate_bytes(rate: str) -> float:
    """Bytes a second that TCP carries on a line of a rate such as "100mbit"."""
    return float(rate.removesuffix("mbit")) * 1e6 / 8 * LINE_PAYLOAD


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--line-rate", default="100mbit", help="as tc writes it, in mbit")
    parser.add_argument("--network-rate", default="400mbit", help="each node's link to the LAN")
    parser.add_argument("--size", type=float, default=1.0, help="GB (10⁹ bytes)")
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--lines", nargs="+", choices=("own", "shared"), default=["own", "shared"])
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="where the nodes' folders lie")
    arguments = parser.parse_args()
    end_on_sigterm()
    nodes, line = arguments.nodes, rate_bytes(arguments.line_rate)
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="headfirst-fetch-") as name:
        source = Path(name) / "source"
        make_checkpoint(source, round(arguments.size * 1e9 / 2**20), arguments.shards)
        size = sum(path.stat().st_size for path in source.iterdir())
        print(f"{size / 1e9:.2f} GB in {arguments.shards} shards to {nodes} nodes;")
        print(f"lines {arguments.line_rate}, LAN {arguments.network_rate}\n")
        print(f"{'lines':8}{'mode':8}{'seconds':>9}{'ratio':>8}{'CPU s':>8}{'load':>7}")
        for lines in arguments.lines:
            shared = lines == "shared"
            ideal = size / line / (1 if shared else nodes)
            rates = (arguments.network_rate, arguments.line_rate)
            with Site(nodes, *rates, Path(name), LIMIT_S, lines=nodes, shared=shared) as site:
                site.serve(source)
                for mode in ("head", "all", "auto") if shared else ("all", "auto"):
                    cost = run(site, nodes, mode)
                    if mode == "head":
                        ideal = cost.seconds
                    print(
                        f"{lines:8}{mode:8}{cost.seconds:9.1f}{cost.seconds / ideal:8.3f}{cost.cpu:8.1f}"
                        f"{cost.load:7.1f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
