"""The nodes' wheel: what is in it, that it installs and runs, and that its version follows its content."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils import node_wheel
from ansible_collections.headfirst.serving.plugins.plugin_utils.node_wheel import build_node_wheel
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def test_equal_content_gives_an_equal_file(tmp_path: Path) -> None:
    one, two = build_node_wheel(tmp_path / "one"), build_node_wheel(tmp_path / "two")
    assert one.name == two.name
    assert one.read_bytes() == two.read_bytes()


def test_other_content_gives_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build_node_wheel(tmp_path)
    sources = node_wheel._sources()
    monkeypatch.setattr(node_wheel, "_sources", lambda: sources | {"headfirst/errors.py": b"# changed\n"})
    after = build_node_wheel(tmp_path)
    assert before.name != after.name


def test_another_lock_gives_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build_node_wheel(tmp_path)
    lock = tmp_path / "base.lock"
    lock.write_text(node_wheel.LOCKS["base"].read_text().replace("sha256:", "sha256:0", 1))
    monkeypatch.setitem(node_wheel.LOCKS, "base", lock)
    assert build_node_wheel(tmp_path).name != before.name


def listed(wheel: Path, name: str) -> Path:
    return wheel.with_name(wheel.name.removesuffix("-py3-none-any.whl") + f".{name}.txt")


@pytest.mark.parametrize("name", node_wheel.LOCKS)
def test_every_line_of_a_lock_has_one_version_and_hashes(name: str, tmp_path: Path) -> None:
    lines = listed(build_node_wheel(tmp_path), name).read_text().replace("\\\n", "").splitlines()
    lines = [line for line in lines if not line.startswith("#")]
    assert lines
    for line in lines:
        requirement, *hashes = line.split("--hash=")
        assert re.fullmatch(r"\./headfirst_node-\S+\.whl |[a-z0-9-]+==[^;*]+( ; .*)?", requirement), line
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}\s*", one) for one in hashes), line


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_locks_hold_what_the_wheel_asks_for(python: str, machine: str) -> None:
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": machine,
        "sys_platform": "linux",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    for name in node_wheel.LOCKS:
        pinned: dict[str, str] = {}
        for line in re.findall(r"(?m)^[a-z0-9-]+==.*$", node_wheel.LOCKS[name].read_text()):
            found = Requirement(line.rstrip(" \\"))
            if found.marker is None or found.marker.evaluate(environment):
                (specifier,) = found.specifier
                assert found.name not in pinned, f"{found.name} has two versions"
                pinned[found.name] = specifier.version
        wanted = [Requirement(line) for line in node_wheel.requirements(name)]
        assert wanted
        for requirement in wanted:
            assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)])


def fixture_package(folder: Path, content: bytes) -> Path:
    """A wheel of a package that the tools are made to need."""
    path = folder / "fixture-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("fixture.py", content)
        archive.writestr("fixture-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: fixture\nVersion: 1\n")
        archive.writestr("fixture-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("fixture-1.dist-info/RECORD", "")
    return path


def install(wheel: Path, packages: Path, into: Path) -> subprocess.CompletedProcess[str]:
    """As role node_tools does it from a folder of wheels."""
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(into), "--no-index"]
    argv += ["--find-links", str(packages), "--require-hashes", "--only-binary", ":all:"]
    argv += ["--requirement", listed(wheel, "base").name]
    settings = os.environ | {"PIP_CONSTRAINT": os.devnull}
    return subprocess.run(argv, cwd=wheel.parent, env=settings, capture_output=True, text=True, check=False)


def test_pip_refuses_files_with_other_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = fixture_package(tmp_path, b"right")
    lock = tmp_path / "base.lock"
    lock.write_text(f"fixture==1 --hash=sha256:{hashlib.sha256(package.read_bytes()).hexdigest()}\n")
    monkeypatch.setitem(node_wheel.LOCKS, "base", lock)
    monkeypatch.setattr(node_wheel, "_REQUIREMENTS", ("fixture>=1",))
    wheel = build_node_wheel(tmp_path)
    done = install(wheel, tmp_path, tmp_path / "right")
    assert done.returncode == 0, done.stderr
    fixture_package(tmp_path, b"wrong")
    done = install(wheel, tmp_path, tmp_path / "wrong")
    assert done.returncode != 0 and "DO NOT MATCH THE HASHES" in done.stderr
    fixture_package(tmp_path, b"right")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("headfirst/more.py", "wrong")
    done = install(wheel, tmp_path, tmp_path / "other wheel")
    assert done.returncode != 0 and "DO NOT MATCH THE HASHES" in done.stderr


def imported(source: bytes) -> set[str]:
    """Dotted names that a module imports, also inside functions; of `from a import b` both `a` and `a.b`."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_its_modules_import_the_wheel_and_its_requirements_alone(tmp_path: Path) -> None:
    """The folders common and node, and of the collection's modules those that they import."""
    with zipfile.ZipFile(build_node_wheel(tmp_path)) as archive:
        sources = {name: archive.read(name) for name in archive.namelist() if name.endswith(".py")}
    folders = {name.split("/")[1] for name in sources if name.startswith("headfirst/")}
    assert folders == {"__init__.py", "common", "node"}
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in sources}
    locked = {
        canonicalize_name(name)
        for lock in node_wheel.LOCKS.values()
        for name in re.findall(r"(?m)^([A-Za-z0-9._-]+)==", lock.read_text())
    }
    distributions = importlib.metadata.packages_distributions()
    used = set()
    for name, source in sources.items():
        for dotted in imported(source):
            top = dotted.split(".")[0]
            if top in ("headfirst", "ansible_collections"):
                inside = next((m for m in (dotted, dotted.rpartition(".")[0]) if m in modules), None)
                is_folder = any(module.startswith(f"{dotted}.") for module in modules)
                assert inside or is_folder, f"{name} imports {dotted}"
                used.add(inside)
            elif top not in sys.stdlib_module_names:
                owners = map(canonicalize_name, distributions[top])
                assert locked & {*owners}, f"{name} imports {dotted}"
    shipped = {module for module in modules if module.startswith("ansible_collections.")}
    assert shipped and shipped <= used, "nothing imports these"


def test_it_installs_and_its_command_says_its_version(tmp_path: Path) -> None:
    wheel = build_node_wheel(tmp_path)
    venv.create(tmp_path / "venv", system_site_packages=False, with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    # The dependencies come from this interpreter: the test needs no index.
    site = next(path for path in sys.path if path.endswith("site-packages"))
    command = tmp_path / "venv" / "bin" / "headfirst-weights"
    said = subprocess.run(
        [command, "--version"], env={"PYTHONPATH": site}, capture_output=True, text=True, check=True
    )
    assert said.stdout.split()[0] in wheel.name
