"""Clients that ask a service all the time: what they see of a change, as a row of docs/operations.md."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import httpx

PAUSE_S = 0.5
"""Between two requests of a client, so that a refusal counts as one request and not as thousands."""


@dataclass
class Seen:
    """What clients got. `answered` are the times at which right answers ended; `lost`, what came instead."""

    began: float = field(default_factory=time.monotonic)
    answered: list[float] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)
    ended: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def outage_s(self) -> float:
        """The longest time without an answer, as far as requests were lost in it."""
        times = [self.began, *sorted(self.answered), self.ended]
        gap = max(later - earlier for earlier, later in pairwise(times))
        return gap if self.lost else 0.0

    def __str__(self) -> str:
        total = len(self.answered) + sum(self.lost.values())
        return f"{sum(self.lost.values())} of {total} lost, {self.outage_s:.0f} s: {dict(self.lost)}"


@contextmanager
def load(
    urls: Sequence[str], key: str, model: str, answer: str, clients: int = 4, words: int = 8
) -> Iterator[Seen]:
    """Clients of the first of `urls` that answers, half of which stream; requests end before this does."""
    seen = Seen()

    def request(number: int) -> None:
        failures = []
        for url in urls:
            got = ask(url, key, model, stream=bool(number % 2), words=words)
            if got and answer.startswith(got):
                break
            failures.append(f"{got or 'nothing'}"[:80])
        with seen.lock:
            if len(failures) < len(urls):
                seen.answered.append(time.monotonic())
            else:
                seen.lost[failures[0]] += 1

    try:
        with repeated(request, clients, PAUSE_S):
            yield seen
    finally:
        seen.ended = time.monotonic()


@contextmanager
def repeated(request: Callable[[int], object], clients: int, pause_s: float) -> Iterator[None]:
    """Threads that call `request` with their number again and again; the last calls end before this does."""
    over = threading.Event()

    def client(number: int) -> None:
        while not over.is_set():
            request(number)
            over.wait(pause_s)

    threads = [threading.Thread(target=client, args=[number]) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def ask(url: str, key: str, model: str, *, stream: bool = False, words: int = 8) -> str:
    """The text of an answer to "Hello!", or what came instead."""
    question = [{"role": "user", "content": "Hello!"}]
    body = {"model": model, "messages": question, "temperature": 0, "max_tokens": words, "stream": stream}
    headers = {"Authorization": f"Bearer {key}"}
    try:
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=180)
        if answer.status_code != 200:
            return f"{answer.status_code}"
        if not stream:
            return str(answer.json()["choices"][0]["message"]["content"])
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
        if not lines or lines[-1] != "[DONE]" or "error" in answer.text:
            return "a stream that broke off"
        events = [json.loads(line) for line in lines[:-1]]
        return "".join(
            choice["delta"].get("content") or "" for event in events for choice in event["choices"]
        )
    except (httpx.HTTPError, ValueError, KeyError) as error:
        return type(error).__name__
