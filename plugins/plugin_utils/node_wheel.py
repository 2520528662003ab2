"""The wheel that nodes get: the weights tools and the supervisor, made from their sources.

It works the same in a checkout, in the collection alone and after pip install. Equal content gives an equal
file, and the version carries a hash of the content and of the locks, so that a role sees from the version
alone whether a node is up to date. Beside the wheel are requirements for pip: the wheel and all that it
needs, each with its hashes.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
import zipfile
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import EXTRAS

NAME = "headfirst_node"
MIN_PYTHON = "3.10"
_COLLECTION = Path(__file__).resolve().parents[2]
# In a checkout and in the collection's archive below it; after pip install beside ansible_collections.
_PLACES = (_COLLECTION / "py" / "headfirst", _COLLECTION / "../../../headfirst")
_PACKAGE = next(path for path in _PLACES if path.is_dir())
# By what is installed: the tools alone, and what each extra adds.
LOCKS = {name: _PACKAGE / "node" / "locks" / f"{name}.lock" for name in ("base", *EXTRAS)}
_REQUIREMENTS = (
    "numpy~=2.2",  # conversion to BF16
    "numba~=0.68",  # the same, as machine code without the GIL
    "blake3>=1.0.8,<2",  # proves pieces of files between nodes
    "cryptography>=44",  # the certificate of encrypted transfers
    "docker>=7.1,<8",  # the containers that the supervisor keeps alive
    "requests>=2.32,<3",  # the engine and the routers, asked by the supervisor; the docker SDK brings it
    "tenacity>=9,<10",  # tries a busy hub again
    "xxhash>=3.5,<5",  # proves files at the speed of memory
    *(f'{package}; extra == "{name}"' for name, package in EXTRAS.items()),
)
# The module_utils of the collection that common/ and node/ import.
_PLUGINS = (
    "compile_cache.py",
    "container_spec.py",
    "http_probe.py",
    "readiness.py",
    "rollout.py",
    "weight_sources.py",
)
_WHEEL = b"""Wheel-Version: 1.0
Generator: headfirst
Root-Is-Purelib: true
Tag: py3-none-any
"""
_COMMANDS = b"""[console_scripts]
headfirst-supervisor = headfirst.node.supervisor.cli:main
headfirst-weights = headfirst.node.weights.cli:main
"""


def requirements(name: str) -> list[str]:
    """What the lock of this name pins: requirements without a marker, or those of an extra."""
    split = [requirement.partition("; extra == ") for requirement in _REQUIREMENTS]
    marker = "" if name == "base" else f'"{name}"'
    return [parts[0] for parts in split if parts[2] == marker]


def build_node_wheel(folder: Path) -> Path:
    """Write the wheel and its requirements into `folder` and return the wheel's path.

    What is there already is not written again; several processes may write at once. The requirements of the
    wheel `X-py3-none-any.whl` are in `X.base.txt`, those of an extra in `X.EXTRA.txt`.
    """
    files, locks = _sources(), {name: path.read_text() for name, path in LOCKS.items()}
    content = hashlib.sha256(repr((sorted(files.items()), _REQUIREMENTS, locks)).encode()).hexdigest()[:12]
    release = (_PACKAGE / "__init__.py").read_text().partition('__version__ = "')[2].partition('"')[0]
    version = f"{release}+h{content}"
    wheel = folder / f"{NAME}-{version}-py3-none-any.whl"
    lists = {name: folder / f"{NAME}-{version}.{name}.txt" for name in locks}
    if all(path.is_file() for path in (wheel, *lists.values())):
        return wheel
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as temporary:
        part = Path(temporary) / wheel.name
        _write(part, files, version)
        # pip takes a relative path from its working folder.
        requirement = f"./{wheel.name} --hash=sha256:{hashlib.sha256(part.read_bytes()).hexdigest()}\n"
        for name, path in lists.items():
            (Path(temporary) / path.name).write_text((requirement if name == "base" else "") + locks[name])
        for path in (*lists.values(), wheel):
            (Path(temporary) / path.name).replace(path)
    return wheel


def _sources() -> dict[str, bytes]:
    """Content by path in the wheel, without the package's __init__.py, which gets the wheel's own version."""
    paths = [path for storey in ("common", "node") for path in (_PACKAGE / storey).rglob("*.py")]
    plugins = _COLLECTION / "plugins" / "module_utils"
    place = "ansible_collections/headfirst/serving/plugins/module_utils"
    return {
        **{f"headfirst/{path.relative_to(_PACKAGE).as_posix()}": path.read_bytes() for path in paths},
        **{f"{place}/{name}": (plugins / name).read_bytes() for name in _PLUGINS},
    }


def _write(path: Path, files: dict[str, bytes], version: str) -> None:
    """Files and metadata as the binary distribution format asks (PEP 427)."""
    info = f"{NAME}-{version}.dist-info"
    metadata = [
        "Metadata-Version: 2.1",
        "Name: headfirst-node",
        f"Version: {version}",
        f"Requires-Python: >={MIN_PYTHON}",
    ]
    metadata += [f"Provides-Extra: {extra}" for extra in EXTRAS]
    metadata += [f"Requires-Dist: {requirement}" for requirement in _REQUIREMENTS]
    everything = {
        "headfirst/__init__.py": f'"""Headfirst\'s node tools."""\n\n__version__ = "{version}"\n'.encode(),
        **dict(sorted(files.items())),
        f"{info}/METADATA": ("\n".join(metadata) + "\n").encode(),
        f"{info}/WHEEL": _WHEEL,
        f"{info}/entry_points.txt": _COMMANDS,
    }
    record = "".join(f"{name},{_record_hash(data)},{len(data)}\n" for name, data in everything.items())
    everything[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in everything.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # ZipInfo's own date is fixed: 1980


def _record_hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
