"""`deploy report`: the plan, and what this controller has recorded of its cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import httpx

from headfirst import __version__
from headfirst.collection import collection_root
from headfirst.common.errors import InputError
from headfirst.control.bench import result as bench
from headfirst.control.bench.result import BenchResult
from headfirst.control.credentials import secrets
from headfirst.control.credentials.identity import cluster_folder
from headfirst.control.deployment.hosts.access import login_secrets
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.role_vars.weights import hub_tokens
from headfirst.control.paths import state_dir
from headfirst.control.report.build import build
from headfirst.control.report.types import ClusterReport, Own
from headfirst.control.run.history import read
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.front import proxy
from headfirst.decide.plan.types import Plan
from headfirst.decide.scrub import Scrubber, url_credentials

_PARTS = ("roles", "playbooks", "plugins")
# In a wheel these folders of the repository are inside the package.
_DATA = ("templates", "inventories")
_ANSWER_S = 2


def report(options: RunOptions, *, probe: bool) -> ClusterReport:
    """The report, without the secrets of the cluster, of its hub and of the login."""
    prepared = prepare(options.inventories, options.extra_vars, probe=probe, ports=probe)
    cluster, plan = prepared.cluster, prepared.plan
    apis = [url for service in plan.services for url in proxy.api(plan, service)]
    with ThreadPoolExecutor() as pool:
        answers = dict(zip(apis, pool.map(answer, apis), strict=True))
    document = build(
        plan,
        read(cluster_folder(cluster)),
        list(_results(cluster)),
        Own(version=__version__, digest=program_digest()),
        answers,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        inventory=str(options.inventories[0]),
    )
    return without_secrets(document, cluster, plan)


def answer(url: str) -> str:
    """What an API answers now, without a key."""
    try:
        # Neither a key nor a request is sent: whose certificate it is does not matter.
        status = httpx.get(f"{url}/models", timeout=_ANSWER_S, trust_env=False, verify=False).status_code  # noqa: S501
    except httpx.HTTPError:
        return f"did not answer within {_ANSWER_S} s"
    return "answers" if status in (200, 401, 403) else f"answers with HTTP {status}, not as a ready model"


def without_secrets(document: ClusterReport, cluster: Cluster, plan: Plan) -> ClusterReport:
    """The report to hand over: a second fence, since the plan and the history have no secret of ours."""
    hidden = [
        *secrets.hidden(cluster, secrets.existing(cluster)),
        *login_secrets(cluster),
        *url_credentials(plan.model_dump(mode="json")),
        *hub_tokens(plan),
    ]
    return ClusterReport.model_validate(Scrubber(hidden).value(document.model_dump(mode="json")))


def program_digest() -> str:
    """SHA-256 over the names and contents of the program's files, the same in a checkout and in a wheel."""
    package = Path(__file__).resolve().parents[3]
    roots = [("headfirst", package), *((part, collection_root() / part) for part in _PARTS)]
    digest = hashlib.sha256()
    for name, root in roots:
        for path in sorted(root.rglob("*")):
            relative = path.relative_to(root)
            if path.is_file() and "__pycache__" not in relative.parts and relative.parts[0] not in _DATA:
                digest.update(f"{name}/{relative.as_posix()}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _results(cluster: Cluster) -> Iterator[BenchResult]:
    """Measurements of this cluster; a file that cannot be read is none."""
    for file in state_dir("bench", cluster.name).glob(f"*/{bench.FILE}"):
        try:
            yield bench.read(file)
        except InputError:
            continue
