"""The data of `deploy report`: what the page shows, and `--json` prints. No secrets, no environments.

Times of day are ISO 8601 UTC; durations seconds; sizes bytes; bandwidths bytes a second.
"""

from __future__ import annotations

from typing import Any, Literal

from headfirst.control.bench.result import BenchResult
from headfirst.control.report.topology import Topology
from headfirst.control.run.comm import NcclChannels, Run, Trouble
from headfirst.control.run.events import Finding
from headfirst.control.run.history import Images, RunRecord
from headfirst.decide.frozen import Tolerant
from headfirst.decide.plan.types import Verdict


class Own(Tolerant):
    """The Headfirst that made the report; `digest`: SHA-256 of its program files."""

    version: str
    digest: str


class ReportedChoice(Tolerant):
    """One decision of the plan, and why."""

    what: str
    value: str
    reason: str = ""


class ReportedRank(Tolerant):
    """Where a rank runs."""

    replica: int
    rank: int
    host: str
    address: str
    gpus: str
    ports: list[int]


class ServiceReport(Tolerant):
    """A service as it is planned; `memory`: bytes of a GPU by term; `command`: that of rank 0.

    `api` are the addresses of its API, `live` what they answered, `curl` a request, whose key is a variable.
    `not_chosen`: engine arguments and why; `alternatives`: what fits where the model does not.
    """

    title: str
    model: str
    api: list[str]
    live: list[str]
    curl: str
    features: str
    measured: str  # by the last start; "" where no run has read it
    choices: list[ReportedChoice]
    memory: list[tuple[str, int]]
    ranks: list[ReportedRank]
    command: list[str]
    not_chosen: list[str]
    alternatives: list[str]
    warnings: list[str]
    notes: list[str]


class PlannedImage(Tolerant):
    """An image that the plan names."""

    what: str
    image: str


class Checked(Tolerant):
    """What the checks of the hosts found in the last run that made them."""

    at: str
    verb: str
    findings: list[Finding]


class CommResult(Tolerant):
    """What the last test of the ranks' communication found, as it was recorded."""

    at: str = ""
    torch: str
    connections: int
    failed_connections: int
    failed_pairs: list[dict[str, Any]]
    runs: list[Run]
    errors: list[Trouble]
    nccl: dict[str, NcclChannels]  # by host
    findings: list[Finding]


class Missing(Tolerant):
    """What no run has recorded, and the command that records it."""

    what: str
    command: str


class ClusterReport(Tolerant):
    """Everything."""

    version: Literal[1] = 1
    made_at: str
    cluster: str
    headfirst: Own
    verdict: Verdict
    warnings: list[str]  # beside those of the services
    links: dict[str, str]  # for a browser, by what is there
    topology: Topology
    services: list[ServiceReport]
    notes: list[str]  # of the plan, on variables that nothing uses
    planned_images: list[PlannedImage]
    images: Images | None
    check: Checked | None
    comm: CommResult | None
    runs: list[RunRecord]  # the newest first, without findings and results
    bench: list[BenchResult]  # the newest first
    missing: list[Missing]
