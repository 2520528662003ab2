"""A new inventory is written only after `deploy plan` has accepted it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from headfirst.collection import data_dir
from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.control.deployment.hosts.found_hosts import ask
from headfirst.control.deployment.prepare import prepare
from headfirst.control.inventory.template import Answers, render_inventory
from headfirst.decide.plan.alternatives import unfit_hint


def write_inventory(answers: Answers, path: Path) -> str | None:
    """Write the inventory; return a note where the plan could not be made yet (no network, for example).

    Raises InputError, and writes nothing, where `deploy plan` would refuse it.
    """
    text = render_inventory(answers, path)
    with tempfile.TemporaryDirectory() as scratch:
        candidate = Path(scratch) / path.name
        candidate.write_text(text, encoding="utf-8")
        note = _refused(candidate, path)
    _write(path, text)
    return note


def write_found(answers: Answers, path: Path) -> str | None:
    """Ask the hosts, then write the inventory as `write_inventory` does; without a model it is not planned.

    Raises NotReadyError, and writes nothing, where a host does not answer.
    """
    found = ask(answers)
    if found.model is not None:
        return write_inventory(found, path)
    _write(path, render_inventory(found, path))
    return None


def copy_example(name: str, path: Path) -> None:
    """Write one of the inventories that Headfirst ships. Raises InputError for an unknown name."""
    known = {file.stem: file for file in sorted(data_dir("inventories").glob("*.ini"))}
    if name not in known:
        raise InputError(f"no example has the name {name}", hint=f"Examples: {', '.join(known)}.")
    _write(path, known[name].read_text(encoding="utf-8"))


def _refused(candidate: Path, path: Path) -> str | None:
    try:
        plan = prepare([candidate], (), probe=False).plan
    except NotReadyError as error:
        return error.what
    except HeadfirstError as error:
        error.where = error.where.replace(str(candidate), str(path)) if error.where else None
        raise
    for service in plan.services:
        if service.fit.fits is False:
            raise InputError(service.fit.reason, hint=unfit_hint(service.alternatives))
    return None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        hint = f"Create the folder: mkdir -p {path.parent}" if not path.parent.is_dir() else None
        raise InputError(f"{path} cannot be written: {error.strerror}", hint=hint) from None
