"""The answer of node_script.py, proven: a node may send anything in its place."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from headfirst.common.untrusted import UntrustedError, for_terminal, inflate, json_document, line
from headfirst.control.evidence.node_script import (
    EARLIER_LINES,
    GPU_FIELDS,
    LINE_CHARS,
    TAIL_LINES,
)
from headfirst.decide.untrusted_model import validated

# Base64 of the compressed answer, and the answer itself: some 10 MB of logs, escaped by JSON.
MAX_SENT = 32 << 20
MAX_ANSWER = 48 << 20
_MAX_LINES = 3 * TAIL_LINES  # those of the start are limited in bytes

_Text = Annotated[str, Field(max_length=4096), AfterValidator(for_terminal)]
# Not cleaned yet: of a line that redraws itself the last state is extracted first.
_LogLine = Annotated[str, Field(max_length=LINE_CHARS)]
_Name = Annotated[str, BeforeValidator(lambda value: line(value, what="a name", limit=1024))]


class _NodeValue(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class EngineContainer(_NodeValue):
    """The rank's container, with the fields of `docker inspect` that common/container_state.py reads.

    `cuda` is the version of its image, "" where that names none.
    """

    inspected: dict[str, Any]
    cuda: _Name = ""
    log: Annotated[list[_LogLine], Field(max_length=_MAX_LINES)]
    earlier: Annotated[list[_LogLine], Field(max_length=EARLIER_LINES)]


class ContainerProblem(_NodeValue):
    """Why the container's state is not known."""

    problem: _Text


class KernelLine(_NodeValue):
    """A line of the kernel's log and its time on the node's clock."""

    at: Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
    text: _Text


def _kernel_line(pair: Any) -> Any:
    return dict(zip(("at", "text"), pair, strict=False)) if isinstance(pair, (list, tuple)) else pair


def _fields(row: Any) -> Any:
    return {name: row.get(name) for name in GPU_FIELDS} if isinstance(row, dict) else row


class Driver(_NodeValue):
    """NVIDIA's driver: its complaints, its GPUs, and upgrades of its packages."""

    said: Annotated[list[_Text], Field(max_length=64)]
    gpus: Annotated[list[Annotated[dict[str, _Name], BeforeValidator(_fields)]], Field(max_length=1024)]
    packages: Annotated[list[_Text], Field(max_length=64)]


class Reply(_NodeValue):
    """What an address of the engine answered; status 0: nothing did."""

    status: Annotated[int, Field(ge=0, le=999)]
    text: Annotated[str, Field(max_length=8 << 20), AfterValidator(for_terminal)]


class NodeAnswer(_NodeValue):
    """Everything of one node."""

    engine: EngineContainer | ContainerProblem | None
    kernel: Annotated[list[Annotated[KernelLine, BeforeValidator(_kernel_line)]], Field(max_length=4096)]
    driver: Driver
    hcas: Annotated[list[_Name], Field(max_length=1024)]
    health: Reply | None
    metrics: Reply | None
    probe: Reply | None


def decode(sent: bytes, *, where: str) -> Any:
    """The JSON in what a node has sent, at most MAX_SENT bytes; UntrustedError where it is none."""
    what = "the answer of the node"
    try:
        packed = base64.b64decode(sent)
    except binascii.Error as error:
        raise UntrustedError(f"{what} is not base64: {error}", where=where) from None
    text = inflate(packed, what=what, where=where, limit=MAX_ANSWER)
    return json_document(text, what=what, where=where, limit=MAX_ANSWER, depth=8)


def check(document: Any, *, where: str) -> NodeAnswer:
    """The answer with its types proven; UntrustedError naming the node."""
    return validated(NodeAnswer, document, what="the answer of the node is", where=where)
