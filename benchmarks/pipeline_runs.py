"""What benchmarks/pipeline.py measures: each stage alone, all of them at once, the documented sequence."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from headfirst.node.weights.proof.manifest import load
from transfer_site import MODEL, WEIGHTS, Cost, Site
from transfers import signing

PORT = 4300
RSYNC_PORT = 8730

DOWNLOAD = "from huggingface_hub import snapshot_download; snapshot_download({model!r}, local_dir={folder!r})"
RSYNC_MODULE = """use chroot = no
pid file = {home}/rsyncd.pid
port = {port}
uid = 0
gid = 0
[weights]
path = {home}/documented
read only = no
"""


class Runs:
    """The stages and the whole, each for folders of its own on all nodes of `site`."""

    def __init__(self, site: Site, nodes: int) -> None:
        self._site = site
        self._nodes = range(nodes)

    def warm_up(self, source: Path) -> None:
        """Have the kernel compiled: a node does that once."""
        self._site.measure({0: [*WEIGHTS, "convert", str(source), str(self._path(0, "warm"))]})

    def fetch(self) -> Cost:
        """The head alone."""
        return self._site.measure({0: [*WEIGHTS, "fetch", MODEL, str(self._path(0, "fp8"))]})

    def broadcast(self) -> Cost:
        """What was fetched, to the other nodes."""
        return self._site.measure({index: self._pipeline(index, "fp8") for index in self._nodes})

    def convert(self, nodes: Sequence[int], target: str, *options: str) -> Cost:
        """What was broadcast, on `nodes` at once."""
        commands = {}
        for index in nodes:
            folders = [str(self._path(index, name)) for name in ("fp8", target)]
            commands[index] = [*WEIGHTS, "convert", *folders, *options]
        return self._site.measure(commands)

    def whole(self) -> Cost:
        """All of it at once, into empty folders."""
        commands = {}
        for index in self._nodes:
            target = ["--convert-to", str(self._path(index, "ours"))]
            commands[index] = [*self._pipeline(index, "arriving"), *target, "--model", MODEL]
        return self._site.measure(commands)

    def documented(self) -> dict[str, Cost]:
        """The steps of the documented sequence."""
        source, target = self._path(0, "downloaded"), self._path(0, "documented")
        download = DOWNLOAD.format(model=MODEL, folder=str(source))
        steps = {
            "download": self._site.measure({0: [sys.executable, "-c", download]}),
            "convert on the head": self._site.measure({0: [*WEIGHTS, "convert", str(source), str(target)]}),
        }
        self.remove("downloaded")
        for index in self._nodes[1:]:
            steps[f"rsync to node {index + 1}"] = self._rsync(target, index)
        return steps

    def prove(self, target: str) -> str:
        """The digest of `target`, which all nodes must have, read anew from every byte."""
        verify = [*WEIGHTS, "verify", "--deep"]
        self._site.measure({index: [*verify, str(self._path(index, target))] for index in self._nodes})
        manifests = [load(self._path(index, target)) for index in self._nodes]
        digests = {manifest.digest if manifest else "" for manifest in manifests}
        if len(digests) != 1:
            sys.exit(f"the copies in {target} are not the same")
        return digests.pop()

    def remove(self, *names: str) -> None:
        """Free the memory of folders on all nodes."""
        for name in names:
            for index in self._nodes:
                shutil.rmtree(self._path(index, name), ignore_errors=True)

    def _pipeline(self, index: int, folder: str) -> list[str]:
        members = [word for address in self._site.addresses for word in ("--member", address)]
        place = ["--address", self._site.addresses[index], "--port", str(PORT), *members]
        place += signing(self._site.home(0).parent, index)
        return [*WEIGHTS, "pipeline", str(self._path(index, folder)), *place]

    def _rsync(self, source: Path, index: int) -> Cost:
        home = self._site.home(index)
        (home / "documented").mkdir(parents=True)
        (home / "rsyncd.conf").write_text(RSYNC_MODULE.format(home=home, port=RSYNC_PORT))
        daemon = self._site.start(index, ["rsync", "--daemon", "--no-detach", f"--config={home}/rsyncd.conf"])
        to = f"rsync://{self._site.addresses[index]}:{RSYNC_PORT}/weights/"
        # Without our notes, so that the copy is proven by reading it; the daemon may not listen yet.
        copy = f"until rsync -a --whole-file --exclude=.headfirst {source}/ {to}; do sleep 0.05; done"
        cost = self._site.measure({0: ["sh", "-c", copy]})
        daemon.terminate()
        daemon.wait(10)
        return cost

    def _path(self, index: int, name: str) -> Path:
        return self._site.home(index) / name
