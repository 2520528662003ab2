"""The real engines, of the snapshots' versions, in folders of the user's cache; they need no GPU.

One folder has the packages that an engine needs on a CPU, from the lock of the lab's image; another one has
the engine's wheel, from `tests/engines/ENGINE/packages.lock`.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from headfirst.common.errors import NotReadyError
from headfirst.control.images import build, site, store
from headfirst.control.machine.pip_settings import uv_environment
from headfirst.control.paths import cache_dir
from headfirst.decide import engines
from headfirst.decide.engines import probing
from uv import find_uv_bin

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DRIVERS = HERE / "drivers"
ENGINES = ("sglang", "vllm", "lmdeploy")
# The lab has no image of LMDeploy, which has no back end for CPUs; the rest is in its own lock.
PACKAGES = {"lmdeploy": "sglang"}
_LONGEST_S = 1800


def run(engine: str, driver: str, request: object, *arguments: str) -> Any:
    """What the script `drivers/DRIVER` answers to `request` inside the engine's environment; both are JSON.

    Its first two arguments are the files of both. Raises AssertionError with its last lines where it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder, "question.json"), Path(folder, "answer.json")
        question.write_text(json.dumps(request), encoding="utf-8")
        run_program(engine, DRIVERS / driver, str(question), str(answer), *arguments)
        return json.loads(answer.read_text(encoding="utf-8"))


def probe(engine: str, request: object, gpu: object = None) -> Any:
    """What the engine's probe answers to `request` (probing.py) inside the engine's environment."""
    loader, modules = probing.program(engine)
    done = subprocess.run(
        [python(), "-s", "-P", str(DRIVERS / "probe_driver.py"), loader, json.dumps(gpu)],
        env=environment(engine),
        input=json.dumps({"modules": modules, "request": request}),
        text=True,
        capture_output=True,
        timeout=_LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, f"the probe of {engine}:\n{done.stderr[-6000:]}"
    return json.loads(done.stdout)


def run_program(engine: str, program: Path, *arguments: str) -> None:
    """Runs a Python program of ours inside the engine's environment."""
    done = subprocess.run(
        [python(), "-s", "-P", str(program), *arguments],
        env=environment(engine),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, f"{program.name} in {engine}:\n{done.stdout[-6000:]}"


def run_tests(engine: str, file: Path) -> None:
    """Runs a file of tests of ours inside the engine's environment; a test that is skipped is a failure."""
    variables = environment(engine)
    # Last: the engine's packages come first, and of these pytest alone is for us.
    folders = [variables["PYTHONPATH"], str(ROOT / "py"), sysconfig.get_paths()["purelib"]]
    done = subprocess.run(
        [
            python(),
            "-s",
            "-P",
            "-m",
            "pytest",
            "-q",
            "-rs",
            "--noconftest",
            "-p",
            "no:cacheprovider",
            str(file),
        ],
        env=variables | {"PYTHONPATH": os.pathsep.join(folders), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_LONGEST_S,
        check=False,
    )
    passed = done.returncode == 0 and "SKIPPED" not in done.stdout
    assert passed, f"{file.name} in {engine}:\n{done.stdout[-6000:]}"


def environment(engine: str) -> dict[str, str]:
    """The variables of a process that imports the engine; nothing of the hub is asked."""
    packages = packages_site(PACKAGES.get(engine, engine))
    folders = [DRIVERS, ROOT / "tools", engine_site(engine), packages]
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return kept | {
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "PYTHONPYCACHEPREFIX": str(cache_dir("tests", "engines", "pycache")),
        "HF_HUB_OFFLINE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_TARGET_DEVICE": "cpu",  # of the tools; the driver of commands has a platform of its own
        "CUDA_VISIBLE_DEVICES": "",
    }


@cache
def python() -> str:
    """A Python 3.11, which the locks are for; not that of a virtual environment."""
    program = Path(sys.base_prefix, "bin", "python3.11")
    if not program.exists():
        program = Path(shutil.which("python3.11") or "")
    if not program.is_file():
        raise NotReadyError("The engines' packages need Python 3.11.", hint="Install python3.11.")
    return str(program)


@cache
def packages_site(engine: str) -> Path:
    """The folder with what the engine needs on a CPU."""
    cpu = Path(engines.__path__[0], engine, "cpu")
    lines = [
        line
        for line in (cpu / "packages.lock").read_text(encoding="utf-8").splitlines()
        if line.partition("==")[0] not in (engine, f"{engine}-cpu")
    ]

    def make(target: Path, downloads: Path) -> None:
        lock = downloads / "packages.lock"
        lock.write_text("\n".join(lines) + "\n", encoding="utf-8")
        site.install(lock, target, downloads, _silent)
        build.install_torch(target, downloads, _silent)
        shims = cpu / "shims"
        site.add(shims, target)
        for stand_in in target.glob(f"{engine}-*.dist-info"):  # of the lab's build, whose name is another
            shutil.rmtree(stand_in)

    return kept(f"{engine}-packages", [*lines, build.TORCH_LOCK.read_text()], [cpu / "shims"], make)


@cache
def engine_site(engine: str) -> Path:
    """The folder with the engine's own wheel."""
    lock = HERE / engine / "packages.lock"
    return kept(
        f"{engine}-wheel",
        [],
        [lock],
        lambda target, downloads: site.install(lock, target, downloads, _silent),
    )


@cache
def ray() -> Path:
    """The folder of Ray's own programs."""

    def make(target: Path, downloads: Path) -> None:
        lock = HERE / "ray" / "packages.lock"
        uv, variables = find_uv_bin(), uv_environment() | {"UV_CACHE_DIR": str(downloads)}
        subprocess.run(
            [uv, "venv", "-q", "--relocatable", "--python", python(), target], env=variables, check=True
        )
        install = [
            uv,
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--require-hashes",
            "--python",
            target / "bin/python",
        ]
        subprocess.run([*install, "-r", lock], env=variables, check=True)

    return kept("ray", [], [HERE / "ray" / "packages.lock"], make) / "bin"


@cache
def texts(name: str) -> Path:
    """The folder with the text that the packages of a lock hold, a file each: NAME-VERSION.txt."""

    def make(target: Path, downloads: Path) -> None:
        packages = downloads / "packages"
        site.install(HERE / name / "packages.lock", packages, downloads, _silent)
        target.mkdir()
        for about in packages.glob("*.dist-info"):
            (target / f"{about.stem}.txt").write_bytes(package_text(packages, about))

    return kept(name, [], [HERE / name / "packages.lock", Path(__file__)], make)


def package_text(folder: Path, about: Path) -> bytes:
    """The strings of a distribution's modules, joined where the source breaks them, and of its libraries."""
    with (about / "RECORD").open(encoding="utf-8", newline="") as file:
        paths = [folder / row[0] for row in csv.reader(file)]
    modules = [path for path in paths if path.suffix == ".py"]
    libraries = [path for path in paths if ".so" in path.suffixes and path.exists()]
    parts = [re.sub(rb"[\"']\s*\n\s*[rf]*[\"']", b"", path.read_bytes()) for path in modules if path.exists()]
    parts += [text for path in libraries for text in re.findall(rb"[\n\t -~]{6,}", path.read_bytes())]
    return b"\n".join(parts)


def kept(name: str, settings: list[str], data: list[Path], make: Any) -> Path:
    """The folder `NAME-KEY` of the cache; made where it is missing, complete or not at all."""
    root = cache_dir("tests", "engines")
    key = store.recipe_key(*data, settings="\n".join(settings))
    target = root / f"{name}-{key}"
    with store.only_one(root, name):
        if target.exists():
            return target
        print(f"Installing {name} (usually 1–3 min)", file=sys.stderr, flush=True)
        for older in root.glob(f"{name}-*"):
            shutil.rmtree(older)
        with tempfile.TemporaryDirectory(dir=root) as scratch:
            made, downloads = Path(scratch, "site"), Path(scratch, "downloads")
            downloads.mkdir()
            make(made, downloads)
            made.rename(target)
    return target


def _silent(_packages: int, _total: int) -> None:
    """No progress: pytest keeps the output."""
