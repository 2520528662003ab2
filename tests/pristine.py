"""A machine that nobody prepared: Debian 12 with systemd, git, ca-certificates and Python, as a container."""

from __future__ import annotations

import configparser
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import docker
from docker.models.containers import Container
from headfirst.control import pip_config
from headfirst.control.images import rootfs, store
from headfirst.control.lab import host_settings, nodes
from headfirst.control.machine import apt, engine, packages
from headfirst.control.paths import cache_dir

NAME = "headfirst-fresh"
_INCLUDED = "systemd,systemd-sysv,git,ca-certificates,python3"
# As in lab nodes: a container's own cgroups are mounted read-only, and systemd writes them.
_INIT = """\
for path in /sys/fs/cgroup /sys/fs/cgroup/*; do
    if mountpoint -q "$path"; then mount -o remount,bind,rw "$path"; fi
done
exec /sbin/init
"""
_BOOT_TIMEOUT = 60.0


class Pristine:
    """The booted machine. What its commands print is printed, with the seconds since the command began."""

    def __init__(self, container: Container) -> None:
        self._container = container

    def run(self, command: str, *, user: str = "root", check: bool = True) -> tuple[int, str]:
        """Run a line of bash as a login of `user` does; return the exit status and all output."""
        argv = ["docker", "exec", "--user", user, NAME, "bash", "-lc", f"cd && {command}"]
        lines: list[str] = []
        began = time.monotonic()
        print(f"\n{user}$ {command}", flush=True)
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            for line in process.stdout or ():
                lines.append(line)
                print(f"{time.monotonic() - began:6.1f} {line}", end="", flush=True)
        output = "".join(lines)
        assert process.returncode == 0 or not check, f"{command}: exit {process.returncode}\n{output[-4000:]}"
        return process.returncode, output

    def write(self, files: dict[str, str | bytes]) -> None:
        """Write files below the root, mode 0644."""
        data = host_settings.archive({name.lstrip("/"): (text, 0o644, 0) for name, text in files.items()})
        self._container.put_archive("/", data)


@contextmanager
def pristine(checkout: Path, folders: dict[str, Path]) -> Iterator[Pristine]:
    """The machine, with `checkout`'s HEAD as a bundle and `folders` (there -> here), read-only."""
    packages.install(packages.missing((*packages.FOR_LAB, *packages.FOR_IMAGES)), _print)
    with (
        store.only_one(cache_dir("fresh"), NAME),  # another run of this suite waits here
        tempfile.TemporaryDirectory(prefix="headfirst-fresh-") as scratch,
    ):
        root = _make_root(Path(scratch))
        client = engine.ensure(_print)  # as late as it is needed: another lab's end may stop it until then
        _remove(client)
        client.api.import_image(src=str(root), repository=NAME, tag="latest")
        bundle = _bundle(checkout, Path(scratch))
        try:
            container = _create(client, {**folders, "/srv/checkout.bundle": bundle})
            machine = Pristine(container)
            _give_access(machine, container)
            yield machine
        finally:
            _remove(client)


def _bundle(checkout: Path, scratch: Path) -> Path:
    """What `git clone` of HEAD gives, as one commit: a checkout may have no older ones (a shallow clone)."""
    copy, tar, bundle = scratch / "checkout", scratch / "checkout.tar", scratch / "checkout.bundle"
    copy.mkdir()
    subprocess.run(["git", "-C", checkout, "archive", f"--output={tar}", "HEAD"], check=True)
    subprocess.run(["tar", "-C", copy, "-xf", tar], check=True)
    git = ["git", "-C", str(copy), "-c", "user.name=fresh", "-c", "user.email=fresh@localhost"]
    for command in (
        ["init", "--quiet"],
        ["add", "--all", "--force"],
        ["commit", "--quiet", "--message=checkout"],
        ["bundle", "create", "--quiet", str(bundle), "HEAD"],
    ):
        subprocess.run([*git, *command], check=True)
    return bundle


def local_folders() -> dict[str, Path]:
    """Folders that this machine's pip settings name: the pristine machine has them at the same place."""
    # The files of an index are beside its pages.
    folders = [path.parent if path.name == "simple" else path for path in _named_by_pip() if path.is_dir()]
    return {str(path): path for path in folders}


def _make_root(scratch: Path) -> Path:
    acquire, root = scratch / "apt.conf", scratch / "root.tar"
    acquire.write_text(apt.acquire())
    sources = rootfs.sources()
    argv = ["mmdebstrap", "--mode=root", "--variant=minbase", f"--include={_INCLUDED}", f"--aptopt={acquire}"]
    argv += ["--quiet", rootfs.SUITE, str(root), *(["-"] if sources else [])]
    subprocess.run(argv, input=sources, text=True, check=True)
    return root


def _create(client: docker.DockerClient, folders: dict[str, Path]) -> Container:
    binds = {str(path): {"bind": target, "mode": "ro"} for target, path in folders.items()}
    volumes = {
        f"{NAME}-{name}": {"bind": f"/var/lib/{name}", "mode": "rw"} for name in ("docker", "containerd")
    }
    security = ["seccomp=unconfined"]
    if any("name=apparmor" in option for option in client.info()["SecurityOptions"]):
        security.append("apparmor=unconfined")
    host = client.api.create_host_config(
        binds=volumes | binds,
        cap_drop=["ALL"],
        cap_add=nodes.available(),
        security_opt=security,
        cgroupns="private",
        tmpfs={"/run": "mode=755"},
    )
    host["MaskedPaths"], host["ReadonlyPaths"] = [], []
    made = client.api.create_container(
        image=f"{NAME}:latest",
        name=NAME,
        hostname="fresh",
        command=["sh", "-c", _INIT],
        environment={"container": "docker"},
        stop_signal="SIGRTMIN+3",
        volumes=["/var/lib/docker", "/var/lib/containerd", *folders],
        host_config=host,
    )
    container = client.containers.get(made["Id"])
    container.start()
    end = time.monotonic() + _BOOT_TIMEOUT
    state = b""
    while time.monotonic() < end:
        state = container.exec_run(["systemctl", "is-system-running"]).output.strip()
        if state in (b"running", b"degraded"):
            return container
        time.sleep(0.2)
    raise TimeoutError(f"systemd of the pristine machine is {state!r} after {_BOOT_TIMEOUT:.0f} s")


def _give_access(machine: Pristine, container: Container) -> None:
    """This machine's access to its archives and indexes, as a real machine would have it."""
    for data in host_settings.collect().archives():
        container.put_archive("/", data)
    machine.run("rm -rf /etc/headfirst-lab /etc/apt/sources.list /etc/pip.conf && update-ca-certificates")
    settings = pip_config.read(os.environ)
    parser = configparser.RawConfigParser()
    parser.read_dict({"global": pip_config.of_command(settings, "install")})
    text = io.StringIO()
    parser.write(text)
    files: dict[str, str | bytes] = {"/etc/pip.conf": text.getvalue()}
    for path in _named_by_pip():
        if path.is_file() and machine.run(f"test -e {path}", check=False)[0] != 0:
            files[str(path)] = path.read_bytes()
    machine.write(files)


def _named_by_pip() -> list[Path]:
    values = " ".join(pip_config.of_command(pip_config.read(os.environ), "install").values()).split()
    return [Path(unquote(urlsplit(value).path)) for value in values if value.startswith(("/", "file:///"))]


def _remove(client: docker.DockerClient) -> None:
    for container in client.containers.list(all=True, filters={"name": f"^{NAME}$"}):
        container.remove(force=True)
    for volume in client.volumes.list(filters={"name": f"{NAME}-"}):
        volume.remove()
    for image in client.images.list(name=NAME):
        client.images.remove(str(image.id), force=True)


def _print(what: str, done: int, total: int) -> None:
    print(f"{what} {done}/{total}", file=sys.stderr)
