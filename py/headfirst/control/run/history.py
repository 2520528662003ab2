"""Runs of the past on this controller: how long their stages took, what checks found. One file a cluster.

The file has mode 0600 and at most KEEP runs; runs at the same time add theirs one after the other. It holds
no secret: findings and results come from events, from which the runner has taken the secrets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from headfirst.common.state_files import exclusive, read_file, replace_file
from headfirst.common.untrusted import UntrustedError, for_terminal, json_document
from headfirst.control.run.events import Finding
from headfirst.decide.diagnose.measured import Measured
from headfirst.decide.frozen import Tolerant
from headfirst.decide.plan.types import Capabilities

FILE = "history.json"
KEEP = 50
KEEP_RESULTS = 5  # runs with their findings, and with the result of a test of the communication
MOST_FINDINGS, LONGEST_TEXT = 200, 600
MAX_BYTES = 16 << 20

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class StageRun(Tolerant):
    """A stage that was completed: when it began, in seconds of its run, and how many tasks it changed."""

    stage: str
    began: Seconds
    seconds: Seconds
    changed: int


class Kind(Tolerant):
    """What makes two runs alike. `asked`: options that change the work; `hosts`: how many took part;
    `after`: `down`, `up` or "", what the cluster was left with; `brings`: the hosts lack the weights."""

    verb: str
    asked: str = ""
    hosts: int
    after: str = ""
    brings: bool = False


class RunRecord(Tolerant):
    """One run. `at`: its begin, ISO 8601 UTC; `containers` and `weights` are digests of what was planned."""

    at: str
    headfirst: str
    kind: Kind
    seconds: Seconds
    completed: bool
    containers: str = ""
    weights: str = ""
    stages: list[StageRun]
    findings: list[Finding] | None = None  # None: the run had no check
    comm: dict[str, Any] | None = None
    capabilities: dict[str, Capabilities] = {}  # of the services that the run brought
    measured: dict[str, Measured] = {}  # of their first replicas

    @property
    def changed(self) -> bool:
        """Whether a stage changed something."""
        return any(stage.changed for stage in self.stages)


class ImageRecord(Tolerant):
    """A container's image on a host, as its Docker Engine reports it."""

    container: str
    host: str
    image: str
    image_id: str


class Images(Tolerant):
    """The images of all containers at one time, ISO 8601 UTC."""

    at: str
    images: list[ImageRecord]


class RunHistory(Tolerant):
    """All runs, the oldest first, and the images that `deploy status` read last."""

    runs: list[RunRecord] = []
    images: Images | None = None


def read(folder: Path) -> RunHistory:
    """The history in `folder`; an empty one where there is none, or none that can be read: it is an aid."""
    file = folder / FILE
    try:
        if not file.is_file() or file.stat().st_size > MAX_BYTES:
            return RunHistory()
        text = read_file(file)
        return RunHistory() if text is None else RunHistory.model_validate(json_document(text, what=FILE))
    except (ValidationError, UntrustedError, UnicodeDecodeError):
        return RunHistory()


def add_run(folder: Path, run: RunRecord) -> None:
    """Add a run, and drop what is older than KEEP. OSError: it cannot be written."""
    with exclusive(folder):
        history = read(folder)
        runs = _bounded([*history.runs, _short(run)][-KEEP:])
        _write(folder, history.model_copy(update={"runs": runs}))


def set_images(folder: Path, images: Images) -> None:
    """Replace the images. OSError: it cannot be written."""
    with exclusive(folder):
        _write(folder, read(folder).model_copy(update={"images": images}))


def _write(folder: Path, history: RunHistory) -> None:
    replace_file(folder / FILE, history.model_dump_json(indent=1) + "\n")


def _short(run: RunRecord) -> RunRecord:
    findings = None if run.findings is None else [_cut(finding) for finding in run.findings[:MOST_FINDINGS]]
    return run.model_copy(update={"findings": findings})


def _cut(finding: Finding) -> Finding:
    return Finding(
        *(
            # JSON cannot have lone surrogates; what is long is cut before it is cleaned, which takes time.
            for_terminal(text[: 4 * LONGEST_TEXT])[:LONGEST_TEXT]
            for text in astuple(finding)
        )
    )


def _bounded(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs; of the older ones only their times."""
    bounded = list(runs)
    for name in ("findings", "comm"):
        having = [number for number, run in enumerate(bounded) if getattr(run, name) is not None]
        for number in having[:-KEEP_RESULTS]:
            bounded[number] = bounded[number].model_copy(update={name: None})
    return bounded
