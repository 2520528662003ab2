"""tools/venv.sh with stand-ins for Python and apt-get: one step for packages, one message per failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PYTHON = """#!/bin/bash
echo "python $*" >>"$STUBS/calls"
case "$*" in
  *version_info\\ \\<*) exit 0 ;;
  *ensurepip*) test -e "$STUBS/has-venv" ;;
  -c*) echo python3.11-venv ;;
  "-m venv"*) mkdir -p "${!#}/bin" && cp "$0" "${!#}/bin/python" ;;
  *headfirst.control.pip_config*) test -e "$STUBS/has-network" ;;
esac
"""
APT_GET = """#!/bin/bash
echo "apt-get $*" >>"$STUBS/calls"
case "$*" in
  *update*) test -e "$STUBS/has-archives" || { echo "E: no route to host"; exit 100; } ;;
  *install*) touch "$STUBS/has-venv" ;;
esac
"""
TOOLS = (
    "bash",
    "cat",
    "cp",
    "cut",
    "dirname",
    "env",
    "flock",
    "mkdir",
    "mktemp",
    "rm",
    "sh",
    "sha256sum",
    "sleep",
)
TOOLS += ("stat", "tail", "touch")


class Machine:
    """A checkout and a PATH of stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.root, self.stubs = folder / "checkout", folder / "stubs"
        (self.root / "tools").mkdir(parents=True)
        for name in ("requirements.lock", "pyproject.toml", "tools/requirements-uv.lock", "tools/venv.sh"):
            shutil.copy(ROOT / name, self.root / name)
        (self.stubs / "bin").mkdir(parents=True)
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found
            (self.stubs / "bin" / tool).symlink_to(found)
        self.stub("python3.11", PYTHON)
        self.stub("apt-get", APT_GET)
        self.stub("id", "#!/bin/bash\necho 0\n")

    def stub(self, name: str, script: str) -> None:
        (self.stubs / "bin" / name).write_text(script)
        (self.stubs / "bin" / name).chmod(0o755)

    def has(self, *names: str) -> None:
        for name in names:
            (self.stubs / name).touch()

    def set_up(
        self, *packages: str, groups: str = "dev", user: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        line = f'set -euo pipefail; root={self.root}; . "$root/tools/venv.sh"; headfirst_venv "{groups}" "$@"'
        environment = {"PATH": str(self.stubs / "bin"), "STUBS": str(self.stubs), "HOME": str(self.stubs)}
        argv = [str(self.stubs / "bin" / "bash"), "-c", line, "bash", *packages]
        return subprocess.run(argv, env=environment, user=user, capture_output=True, text=True, check=False)

    def calls(self, program: str) -> list[str]:
        path = self.stubs / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(program)]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_all_packages_are_installed_in_one_step(machine: Machine) -> None:
    machine.has("has-archives")
    done = machine.set_up("gnupg", "iptables")
    [install] = [call for call in machine.calls("apt-get") if " install " in call]
    assert install.split()[-3:] == ["python3.11-venv", "gnupg", "iptables"]
    assert "Installing with apt-get: python3.11-venv gnupg iptables (usually" in done.stderr


@pytest.mark.parametrize("missing", ["sudo", "apt-get", "archives"])
def test_packages_that_cannot_be_installed_are_named_in_one_message(machine: Machine, missing: str) -> None:
    if missing == "sudo":
        machine.stub("id", "#!/bin/bash\necho 1000\n")
    if missing == "apt-get":
        (machine.stubs / "bin" / "apt-get").unlink()
    done = machine.set_up("gnupg")
    assert done.returncode == 3
    message = done.stderr.strip().splitlines()[-1]
    assert message.startswith("This machine lacks python3.11-venv gnupg")
    assert message.endswith("then run this again.")
    assert ("no route to host" in done.stderr) == (missing == "archives")
    assert not machine.calls("python -m venv")


def test_without_network_the_last_line_is_what_to_do(machine: Machine) -> None:
    machine.has("has-venv")
    done = machine.set_up()
    assert done.returncode == 3
    assert (
        done.stderr.strip().splitlines()[-1].startswith("pip could not install uv. Check that this machine")
    )


def test_what_an_interrupted_setup_left_is_replaced(machine: Machine) -> None:
    machine.has("has-venv")
    (machine.root / ".venv" / "bin").mkdir(parents=True)
    (machine.root / ".venv" / "bin" / "python").symlink_to("/not/there")
    machine.set_up()
    assert machine.calls("python -m venv --clear")


def test_a_finished_setup_is_used_unless_its_python_has_gone_or_the_checkout_was_moved(
    machine: Machine,
) -> None:
    machine.has("has-venv")
    venv = machine.root / ".venv"
    (venv / "bin").mkdir(parents=True)
    machine.stub("python", PYTHON)
    (venv / "bin" / "python").symlink_to(machine.stubs / "bin" / "python")
    files = "requirements.lock tools/requirements-*.lock tools/venv.sh pyproject.toml"
    argv = ["bash", "-c", f"(pwd && cat {files}) | sha256sum"]
    printed = subprocess.run(argv, cwd=machine.root, capture_output=True, text=True, check=True).stdout
    digest = printed.split()[0]

    def is_made_again() -> bool:
        (venv / ".made-from-dev").write_text(digest)
        (machine.stubs / "calls").unlink(missing_ok=True)
        machine.set_up()
        return bool(machine.calls("python -m venv"))

    assert not is_made_again()
    (venv / "bin" / "python").unlink()
    assert is_made_again()
    machine.root = machine.root.rename(machine.root.with_name("moved"))
    venv = machine.root / ".venv"
    assert is_made_again()


def test_deploy_keeps_the_packages_of_the_tests(machine: Machine) -> None:
    machine.has("has-venv", "has-network")
    (machine.root / ".venv").mkdir()
    machine.set_up(groups="")
    assert not [line for line in machine.calls("python") if "requirements-dev.lock" in line]
    (machine.root / ".venv" / ".made-from-dev").write_text("of before")
    machine.set_up(groups="")
    assert [line for line in machine.calls("python") if "requirements-dev.lock" in line]


def test_a_checkout_that_cannot_be_written_is_named() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        machine = Machine(Path(folder))
        machine.has("has-venv", "calls")
        (machine.stubs / "calls").chmod(0o666)
        machine.root.chmod(0o555)
        done = machine.set_up(user=65534 if os.geteuid() == 0 else None)
        machine.root.chmod(0o755)
    assert f"{machine.root} cannot be written" in done.stderr
    assert done.returncode == 3
