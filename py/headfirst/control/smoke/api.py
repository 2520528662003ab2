"""The service as its users reach it: through the OpenAI client, with every error named."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai

from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.smoke.answers import ChatAnswer, Chunk, FailedCase, ModelList, RefusedRequest, read
from headfirst.decide.engines.base import ReadinessProbe, RequestDialect, Task
from headfirst.decide.engines.presets import Purpose

AT_ONCE = 32
PROMPT = "Count to ten."
_CONNECT_TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 16 << 20
# The client adds headers that the user's environment has for OpenAI's own service: OPENAI_ORG_ID,
# OPENAI_CUSTOM_HEADERS. They stay here.
_HEADERS = {
    "accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "host",
    "transfer-encoding", "user-agent",
}  # fmt: skip


@dataclass(frozen=True)
class Parser:
    """A parser of the engine: why the plan has none, and what to write into the inventory for a change."""

    absent: str
    line: str


@dataclass(frozen=True)
class ServiceTarget:
    """What the plan has decided about a service, as far as requests depend on it."""

    model: str  # its name in the API
    task: Task
    engine: str  # as its own project writes it
    dialect: RequestDialect
    parsers: Mapping[Purpose, Parser] = field(default_factory=dict)


class Api:
    """A client of one service. `url` is the engine's address without `/v1`.

    Methods raise RefusedRequest for an answer with an error's status, and FailedCase for none within
    `timeout_s` seconds, for a broken one and for one that is not what the API defines.
    """

    def __init__(self, url: str, key: str, target: ServiceTarget, timeout_s: float) -> None:
        self.url = url
        self.target = target
        self.timeout_s = timeout_s
        timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_TIMEOUT_S))
        self._http = httpx.Client(
            transport=_BoundedTransport(timeout_s, connections=AT_ONCE),
            headers={"Accept-Encoding": "identity"},
            timeout=timeout,
            trust_env=False,
        )
        self.client = openai.OpenAI(
            api_key=key,
            base_url=f"{url}/v1",
            timeout=timeout,
            max_retries=0,
            http_client=self._http,
            default_headers={"Accept-Encoding": "identity"},
        )

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    @property
    def room(self) -> int:
        """Tokens for an answer of a few words; a model that thinks first needs more."""
        return 4096 if self.target.dialect.reasoning_parser else 256

    def require_ready(self, readiness: ReadinessProbe) -> None:
        """Raise NotReadyError where the service does not answer GET `readiness.path` with 200."""
        hint = "`deploy status` shows the ranks; `deploy diagnose` finds why the service does not answer."
        try:
            self.get(readiness.path)
        except FailedCase as error:
            raise NotReadyError(f"the service is not ready: {error.what}", hint=hint) from None

    def chat(self, messages: str | list[dict[str, Any]] = PROMPT, **parameters: Any) -> ChatAnswer:
        """One chat request; greedy and of at most 16 tokens unless `parameters` set something else."""
        with self.errors():
            return read(ChatAnswer, self.client.chat.completions.create(**self._chat(messages, parameters)))

    def stream(self, messages: str | list[dict[str, Any]] = PROMPT, **parameters: Any) -> Iterator[Chunk]:
        """The events of a chat request; the connection ends with the iterator."""
        with (
            self.errors(),
            self.client.chat.completions.create(**self._chat(messages, parameters), stream=True) as events,
        ):
            for event in events:
                yield read(Chunk, event)

    def models(self) -> ModelList:
        """What the service serves."""
        with self.errors():
            # Not models.list(), whose pages hide an answer that is no list.
            return read(ModelList, self.client.get("/models", cast_to=object))

    def get(self, path: str) -> None:
        """GET a path of the engine's own; the answer's body does not matter."""
        with self.errors():
            self.client.get(f"{self.url}{path}", cast_to=httpx.Response)

    def post(self, path: str, **body: Any) -> Any:
        """POST to a path that OpenAI's API lacks; the answer as parsed JSON, of any type."""
        with self.errors():
            return self.client.post(
                f"{self.url}{path}", cast_to=object, body={"model": self.target.model, **body}
            )

    def _chat(self, messages: str | list[dict[str, Any]], parameters: dict[str, Any]) -> dict[str, Any]:
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        defaults = {"model": self.target.model, "temperature": 0, "max_tokens": 16}
        return {**defaults, "messages": messages, **parameters}

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Around a call of `client`: its exceptions as those of a case."""
        try:
            yield
        except openai.APIStatusError as error:
            raise RefusedRequest(error.status_code, _message(error)) from None
        except (openai.APITimeoutError, httpx.TimeoutException):
            raise FailedCase(f"no complete answer within {self.timeout_s:g} s") from None
        except openai.APIConnectionError as error:
            cause = error.__cause__
            if isinstance(cause, UntrustedError):
                raise FailedCase(cause.what) from None
            raise FailedCase(f"the connection was closed: {cause or error}") from None
        except openai.APIError as error:  # an error in the midst of a stream
            raise FailedCase(f"the service stopped the answer: {error.message}") from None
        except httpx.HTTPError as error:
            raise FailedCase(f"the connection was closed: {error}") from None
        except UntrustedError as error:
            raise FailedCase(error.what) from None
        except (ValueError, RecursionError):
            raise FailedCase("the answer is not JSON as the API defines it") from None


def _message(error: openai.APIStatusError) -> str:
    """The text of an error; engines put it at `error.message`, `message`, `detail`, or send no JSON."""
    body = error.body  # the client has taken what is under `error`
    text = body.get("message") or body.get("detail") if isinstance(body, dict) else body
    return str(text or "without a message")


class _BoundedTransport(httpx.HTTPTransport):
    """As httpx's, for answers of at most MAX_ANSWER_BYTES that end within `timeout_s`, uncompressed."""

    def __init__(self, timeout_s: float, *, connections: int) -> None:
        super().__init__(limits=httpx.Limits(max_connections=connections))
        self._timeout_s = timeout_s

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request; UntrustedError for a compressed answer, whose size is not known."""
        end = time.monotonic() + self._timeout_s
        for name in set(request.headers) - _HEADERS:
            del request.headers[name]
        response = super().handle_request(request)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            response.close()
            raise UntrustedError("the answer is compressed, and the request was for an uncompressed one")
        assert isinstance(response.stream, httpx.SyncByteStream)  # noqa: S101 - of a synchronous transport
        response.stream = _Bounded(response.stream, request, end)
        return response


class _Bounded(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, request: httpx.Request, end: float) -> None:
        self._stream = stream
        self._request = request
        self._end = end

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for chunk in self._stream:
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise UntrustedError(f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
            if time.monotonic() > self._end:
                raise httpx.ReadTimeout("the answer has no end", request=self._request)
            yield chunk

    def close(self) -> None:
        self._stream.close()
