"""Keeps a replica in the lists of its routers (smg) while it serves, and out of them while it does not.

A replica that is drained stays in a router's list, without new requests, until it is removed or registered
again, so that the requests that it still answers can be counted. Removing it does not end them.

A router sends each request to one replica, or to one that prefills and one that decodes. It has replicas of
both kinds while a run changes the one shape into the other, and chooses the shape by their numbers, ready or
not: so the last one of a shape leaves it before it is drained.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

import requests

from headfirst.common import untrusted
from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.node.supervisor.records import GenerationRecord

Status = Literal["pending", "ready", "not_ready", "failed", "draining"]
Role = Literal["regular", "prefill", "decode", "encode"]
_TIMEOUT_S = 3.0
# How long smg keeps a drained replica in its list.
_DRAIN_S = 86_400
# The router carries out a request after it has answered it.
_DONE_S = 2.0
_LONGEST = 1 << 20
# What encodes images gets no request over HTTP.
_NO_SHAPE: Role = "encode"
# A decode replica that dies would open the breaker of the prefill replica, too, which has answered.
_NO_BREAKER = {"disable_circuit_breaker": True}
# Requests of other kinds have answers of the router's own, or do not pass it.
_ROUTED = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
_ANSWER_S = 60.0
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Worker:
    """A replica in the list of a router; `requests` are those that it answers now."""

    id: str
    url: str
    status: Status
    requests: int
    role: Role = "regular"


def can_answer(roles: Collection[str]) -> bool:
    """Whether replicas with these roles make a whole shape."""
    return "regular" in roles or {"prefill", "decode"} <= {*roles}


class RouterApi:
    """The control API of a router. Methods raise NotReadyError where it does not answer, or refuses."""

    def __init__(self, url: str, key: str, timeout_s: float = _TIMEOUT_S) -> None:
        self.url, self._timeout_s = url, timeout_s
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy must not be between a node and its router
        self._session.headers["Authorization"] = f"Bearer {key}"

    def workers(self) -> list[Worker]:
        """The replicas in its list. Raises UntrustedError for an answer that no router gives."""
        answer = untrusted.json_object(
            self._ask("GET", "/workers", expected=(200,)), what="the list of replicas", where=self.url
        )
        listed = answer.get("workers")
        if not isinstance(listed, list):
            raise UntrustedError("the list of replicas is not a list", where=self.url)
        return [self._worker(worker) for worker in listed]

    def worker(self, url: str) -> Worker | None:
        """The replica at this address; None where it is not in the list."""
        return next((worker for worker in self.workers() if worker.url == url), None)

    def register(
        self, url: str, api_key: str, fields: Mapping[str, str | int] = MappingProxyType({})
    ) -> None:
        """Send requests to the replica at `url`, which must answer now; nothing where that is so.

        `fields` are more of a worker in the router's API, such as its role in prefill and decode.
        """
        role = fields.get("worker_type", "regular")
        worker = self.worker(url)
        if worker is None or worker.status == "draining" or worker.role != role:
            self._put(worker, url, api_key, fields)

    def completes(self, path: str, body: Mapping[str, Any], api_key: str) -> None:
        """Have a request of a client answered."""
        self._ask("POST", path, body, expected=(200,), key=api_key, timeout_s=_ANSWER_S)

    def drain(self, url: str, api_key: str = "") -> int:
        """Send no new requests to the replica; the number of those that it still answers."""
        workers = self.workers()
        worker = next((worker for worker in workers if worker.url == url), None)
        others = _ready(workers, url)
        is_last = worker is not None and worker.role not in (_NO_SHAPE, *others.values())
        if worker and worker.status == "ready" and is_last and can_answer(others.values()):
            self._put(worker, url, api_key, {"worker_type": _NO_SHAPE})
            worker = self._after(url, lambda latest: latest.role == _NO_SHAPE)
        # smg removes one that is not ready, and counts its requests no more; new ones it does not get.
        if worker and (worker.status == "ready" or (worker.status != "draining" and not worker.requests)):
            self._delete(worker)
            worker = self._after(url, lambda latest: latest.status == "draining")
        return worker.requests if worker else 0

    def remove(self, url: str, api_key: str = "") -> None:
        """Take the replica out of the list; its requests go on."""
        self.drain(url, api_key)
        worker = self.worker(url)
        if worker is not None:
            self._delete(worker)
            self._after(url, lambda _: False)

    def _put(self, worker: Worker | None, url: str, api_key: str, fields: Mapping[str, str | int]) -> None:
        """Add the replica, or replace what is listed of it."""
        body = {
            "url": url,
            "api_key": api_key,
            "health": {"drain_settle_secs": _DRAIN_S},
            "resilience": _NO_BREAKER if fields else {},
            **fields,
        }
        if worker is None:
            self._ask("POST", "/workers", body, expected=(202, 409))  # 409: another supervisor was first
        else:
            self._ask("PUT", f"/workers/{worker.id}", body, expected=(202,))

    def _delete(self, worker: Worker) -> None:
        """smg drains a replica that is ready, and removes one that is not."""
        self._ask("DELETE", f"/workers/{worker.id}", expected=(202, 404))

    def _after(self, url: str, is_done: Callable[[Worker], bool]) -> Worker | None:
        ends = time.monotonic() + _DONE_S
        while (worker := self.worker(url)) is not None and not is_done(worker):
            if time.monotonic() > ends:
                raise NotReadyError(f"{url} is still {worker.status}", where=self.url)
            time.sleep(0.02)
        return worker

    def _worker(self, document: Any) -> Worker:
        fields = untrusted.json_object(document, what="a replica in the list", where=self.url)
        status, role = fields.get("status"), fields.get("worker_type", "regular")
        if status not in get_args(Status) or role not in get_args(Role):
            raise UntrustedError("a replica in the list has an unknown status or role", where=self.url)
        id = untrusted.line(fields.get("id"), what="the id of a replica", where=self.url)
        if not _ID.fullmatch(id):
            raise UntrustedError("the id of a replica is not a UUID", where=self.url)
        return Worker(
            id=id,
            url=untrusted.line(fields.get("url"), what="the address of a replica", where=self.url),
            status=cast(Status, status),
            role=cast(Role, role),
            requests=untrusted.integer(
                fields.get("load"), what="the requests of a replica", where=self.url, high=10**6
            ),
        )

    def _ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        expected: tuple[int, ...],
        key: str = "",
        timeout_s: float = 0.0,
    ) -> Any:
        timeout_s = timeout_s or self._timeout_s
        ends = time.monotonic() + timeout_s
        told = bytearray()
        try:
            with self._session.request(
                method,
                self.url + path,
                json=body,
                headers={"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {}),
                timeout=timeout_s,
                allow_redirects=False,
                stream=True,
            ) as answer:
                for chunk in answer.iter_content(65_536):
                    told += chunk
                    if len(told) > _LONGEST or time.monotonic() > ends:
                        raise UntrustedError("the answer of the router does not end", where=self.url)
                status = answer.status_code
        except (requests.RequestException, OSError) as error:
            raise NotReadyError(
                f"the router does not answer: {type(error).__name__}", where=self.url
            ) from None
        if status not in expected:
            raise NotReadyError(f"the router answers {status} to {method} {path}", where=self.url)
        return untrusted.json_document(bytes(told), what="the answer of the router", where=self.url)


TURN_S = 2.0
_Failed = (NotReadyError, UntrustedError)


class Registration:
    """One replica at its routers. While `serves` is None, somebody changes the replica: nothing is done.

    Each turn reads the lists again, so a router that was started again, or whose list somebody has changed,
    has the replica after a moment.
    """

    def __init__(self, record: GenerationRecord, serves: Callable[[], bool | None]) -> None:
        self._record, self._serves = record, serves
        self._routers = routers_of(record)
        self.problems: dict[str, str] = {}  # by the address of the router

    def turn(self) -> None:
        """Bring every router's list up to date; one that does not answer is asked again the next time."""
        serves = self._serves()
        if serves is None:
            return
        for router in self._routers:
            try:
                if serves:
                    router.register(self._record.url, self._record.api_key, self._record.worker)
                else:
                    router.remove(self._record.url, self._record.api_key)
                self.problems.pop(router.url, None)
            except _Failed as error:
                self.problems[router.url] = error.what

    def leave(self) -> None:
        """Take the replica out of every list, once."""
        for router in self._routers:
            with contextlib.suppress(*_Failed):  # it finds by itself that nothing answers there
                router.remove(self._record.url, self._record.api_key)


def routers_of(record: GenerationRecord) -> list[RouterApi]:
    """The routers of a replica."""
    return [RouterApi(router.url, router.key) for router in record.routers]


def drain(
    url: str, routers: Sequence[RouterApi], seconds: float, api_key: str = ""
) -> tuple[int, dict[str, str]]:
    """Let routers send no new requests to the replica; wait until none runs.

    The number that still runs, and why it is not known, by address of a router that does not answer: it may
    send more, and one that stops refuses connections while its requests go on. Of several routers with one
    address, and different keys, one must answer.
    """
    ends = time.monotonic() + seconds
    while True:
        left: dict[str, int] = {}
        unknown: dict[str, str] = {}
        for router in routers:
            try:
                left[router.url] = router.drain(url, api_key)
            except _Failed as error:
                unknown[router.url] = error.what
        unknown = {address: why for address, why in unknown.items() if address not in left}
        if not (unknown or any(left.values())) or time.monotonic() > ends:
            return sum(left.values()), unknown
        time.sleep(0.5)


def is_needed(url: str, routers: Sequence[RouterApi], changed: dict[str, str]) -> bool:
    """Whether no router answers requests while the replica does not serve.

    `changed`: the role of each replica that the run has changed by then, by address.
    """
    for router in routers:
        with contextlib.suppress(*_Failed):
            if can_answer((_ready(router.workers(), url) | changed).values()):
                return False
    return True


def missing(record: GenerationRecord, routers: Sequence[RouterApi], seconds: float) -> dict[str, str]:
    """Register the replica; why a router does not use it after so many seconds, by its address.

    A router whose replicas make a whole shape must answer a request as well.
    """
    ends = time.monotonic() + seconds
    while True:
        reasons = {router.url: why for router in routers if (why := _lacks(router, record))}
        if not reasons or time.monotonic() > ends:
            return reasons
        time.sleep(0.5)


def _ready(workers: Sequence[Worker], besides: str = "") -> dict[str, str]:
    """The roles of the replicas that are ready, by address; `besides` is left out."""
    return {
        worker.url: worker.role for worker in workers if worker.status == "ready" and worker.url != besides
    }


def _lacks(router: RouterApi, record: GenerationRecord) -> str:
    how = record.readiness
    try:
        router.register(record.url, record.api_key, record.worker)
        workers = router.workers()
        here = [worker for worker in workers if worker.url == record.url]
        role = record.worker.get("worker_type", "regular")
        if not here or (here[0].status, here[0].role) != ("ready", role):
            return f"the replica is {here[0].status} there" if here else "the replica is not in its list"
        if can_answer(_ready(workers).values()) and how["probe_path"] in _ROUTED:
            body = {**how["probe_body"], "model": record.model}
            router.completes(how["probe_path"], body, record.api_key)
    except _Failed as error:
        return error.what
    return ""
