"""Slurm on this machine without systemd: two virtual nodes, each in a network namespace of its own.

The programs are Debian's, with a configuration, a munge key and sockets in one folder. Needs root.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from netns import Lan

_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}({addresses[0]})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
ReturnToService=2
KillWait=5
{nodes}
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


class SlurmCluster:
    """Nodes n1 and n2; the controller is on n1. Leaving the context ends what it started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lan = Lan(2, None)
        self.addresses = self._lan.addresses
        self._environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}

    def __enter__(self) -> SlurmCluster:
        self._lan.__enter__()
        try:
            self._configure()
            self._munge()
            for argv in (["slurmctld", "-D"], ["slurmd", "-D", "-N", "n1"]):
                self._start(0, *argv)
            self._start(1, "slurmd", "-D", "-N", "n2")
            self._until(lambda: self.run("sinfo", "-h", "-o", "%T %D").stdout == "idle 2\n", 60)
        except BaseException:
            self._lan.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # The programs of a job are children of none of ours.
            self.run("scancel", "--user=root")
            self._until(lambda: not self.run("squeue", "--noheader").stdout, 60)
        finally:
            self._lan.close()

    def run(
        self, *argv: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command on n1."""
        command = ["nsenter", f"--net={self._lan.namespace(0)}", *argv]
        env = self._environment | dict(environment or {})
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=env)

    def submit(self, script: Path, environment: Mapping[str, str]) -> str:
        """The id of the job."""
        done = self.run("sbatch", "--parsable", str(script), cwd=script.parent, environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def state(self, job: str) -> str:
        """Slurm's word for it, such as RUNNING."""
        shown = self.run("scontrol", "--oneliner", "show", "job", job).stdout
        return next(word.removeprefix("JobState=") for word in shown.split() if word.startswith("JobState="))

    def _configure(self) -> None:
        nodes = [
            f"NodeName=n{number} NodeHostname={socket.gethostname()} NodeAddr={address} CPUs=2 State=UNKNOWN"
            for number, address in enumerate(self.addresses, 1)
        ]
        text = _CONFIGURATION.format(
            folder=self._folder, host=socket.gethostname(), addresses=self.addresses, nodes="\n".join(nodes)
        )
        (self._folder / "slurm.conf").write_text(text)
        (self._folder / "state").mkdir()

    def _munge(self) -> None:
        key = self._folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        names = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        paths = [f"--{option}={self._folder}/munge.{end}" for option, end in names.items()]
        self._start(0, "munged", "--foreground", "--force", f"--key-file={key}", *paths)
        self._until((self._folder / "munge.socket").exists, 20)

    def _start(self, node: int, *argv: str) -> None:
        """Ranks that see the same shared memory would take each other for ranks of one host."""
        own = ["unshare", "--mount", "--ipc", "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh"]
        log = (self._folder / f"{argv[0]}-{node}.out").open("wb")
        self._lan.run(node, [*own, *argv], env=self._environment, stdout=log, stderr=log)

    def _until(self, met: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not met():
            if time.monotonic() > end:
                outputs = [path.read_text()[-1500:] for path in sorted(self._folder.glob("*.out"))]
                raise AssertionError("\n".join(outputs))
            time.sleep(0.5)
