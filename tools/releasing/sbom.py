"""The SBOM: every Python package that the release pins, by the lock file that pins it, in CycloneDX 1.6."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from headfirst.control.bundle.wheels import applying
from packageurl import PackageURL

# Ubuntu 22.04's of the nodes to the newest that tools/venv.sh takes.
_PYTHONS = ("3.10", "3.11", "3.12", "3.13")
_PACKAGE = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>\S+)(?P<hashes>(?:\s+\\?\s*--hash=\S+)+)", re.MULTILINE
)


def build(source: Path, version: str, epoch: int) -> str:
    """The SBOM of the checkout `source` as JSON. `epoch` is its time, and it is the same for the same files.

    Raises ValueError where it does not match CycloneDX's schema.
    """
    root = Component(
        name="headfirst",
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref="headfirst",
        licenses=[DisjunctiveLicense(id="Apache-2.0")],
    )
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"headfirst {version} {epoch}"))
    bom.metadata.component = root
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, timezone.utc)
    packages: dict[str, Component] = {}
    parts = []
    for path in locks(source):
        name = path.relative_to(source).as_posix().removeprefix("py/")
        part = Component(name=name, version=version, type=ComponentType.APPLICATION, bom_ref=name)
        parts.append(part)
        dependencies = []
        for package in _packages(path.read_text("utf-8")):
            component = packages.setdefault(str(package.purl), package)
            # One lock has the files of all systems, another one the file of one image.
            component.hashes.update(package.hashes)
            dependencies.append(component)
        bom.register_dependency(part, sorted(set(dependencies)))
    bom.components.update(parts, packages.values())
    bom.register_dependency(root, parts)
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    # It compiles grammars for five seconds, which only a release needs.
    from cyclonedx.validation.json import JsonStrictValidator

    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        raise ValueError(f"the SBOM does not match its schema: {error}")
    return text + "\n"


def locks(source: Path) -> list[Path]:
    """The lock files of the release: the controller's, the node tools', the images' and the load tool's."""
    return [source / "requirements.lock", *sorted((source / "py").rglob("*.lock"))]


def _packages(lock: str) -> Iterator[Component]:
    """The packages that a lock has for Linux; their hashes are those of each file that may be installed."""
    text = "\n".join(applying(lock, python) for python in _PYTHONS)
    for line in _PACKAGE.finditer(text):
        purl = PackageURL("pypi", name=line["name"], version=line["version"])
        yield Component(
            name=line["name"],
            version=line["version"],
            bom_ref=str(purl),
            purl=purl,
            hashes=[
                HashType(alg=HashAlgorithm.SHA_256, content=digest)
                for digest in re.findall(r"--hash=sha256:([0-9a-f]{64})", line["hashes"])
            ],
        )
