"""One rank of a rehearsal: node_script.py on its host, and what that sends, proven."""

from __future__ import annotations

import base64
import contextlib
import json
import queue
import threading
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import paramiko
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError, for_terminal, json_document
from headfirst.control.live.ssh_access import explain
from headfirst.control.live.ssh_access.privileged import privileged
from headfirst.control.live.ssh_access.ssh import ERROR_BYTES, ssh
from headfirst.control.rehearsal.node_script import BEAT_S
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.plan.types import Node
from headfirst.decide.untrusted_model import validated

_SCRIPT = Path(__file__).with_name("node_script.py")
_LINE_BYTES = 1 << 16
# Without a line: Docker may take its time for an image that was never run, and `nvidia-smi` on many GPUs.
_SILENT_S = 300.0

_Text = Annotated[str, Field(max_length=4096), AfterValidator(for_terminal)]


class RankEvent(BaseModel):
    """One line of the node script."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    event: Literal[
        "folders", "started", "listening", "unreachable", "serving", "exited", "failed", "refused",
        "beat", "gone",
    ]  # fmt: skip
    why: _Text = ""  # of failed, refused and unreachable
    code: Annotated[int, Field(ge=-255, le=255)] = 0  # of exited
    missing: Annotated[list[_Text], Field(max_length=8)] = []  # of folders


class Told(NamedTuple):
    """What a rank reports; `event` None: its host is lost, by `error`."""

    rank: Rank
    event: RankEvent | None
    error: Exception | None = None


class Rank:
    """A rank that is being rehearsed. Its thread puts what its host reports into `told`."""

    def __init__(
        self, node: Node, access: HostAccess, request: Mapping[str, Any], told: queue.Queue[Told]
    ) -> None:
        self.node, self.access = node, access
        self._request, self._told = request, told
        self._lines: queue.Queue[str] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name=f"rehearsal {node.host}", daemon=True)

    def start(self) -> None:
        """Begin; what is to come is in `told`."""
        self._thread.start()

    def folders(self, files: Mapping[str, Mapping[str, bytes]]) -> None:
        """Send the small files of folders that its host lacks."""
        encoded = {
            folder: {name: base64.b64encode(data).decode() for name, data in content.items()}
            for folder, content in files.items()
        }
        packed = zlib.compress(json.dumps(encoded).encode())
        self._lines.put(f"folders {base64.b64encode(packed).decode()}")

    def reach(self) -> None:
        """Let its host connect to the head, where rank 0 listens now."""
        self._lines.put("reach")

    def stop(self, seconds: int) -> None:
        """End it, with `seconds` for a clean end."""
        self._lines.put(f"stop {seconds}")

    def join(self, seconds: float) -> bool:
        """Wait for its end; whether it came."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for event in self._events():
                self._told.put(Told(self, event))
        except Exception as error:
            self._told.put(Told(self, None, error))

    def _events(self) -> Iterator[RankEvent]:
        line, first = privileged(self.access, "python3", "-c", _SCRIPT.read_text())
        with ssh(self.access) as connection, contextlib.ExitStack() as stack:
            try:
                to, out, err = connection.exec_command(line, timeout=_SILENT_S)
                stack.callback(out.channel.close)  # the script ends its rank where nobody listens
                to.write(first + json.dumps(self._request).encode() + b"\n")
                to.flush()
                ended = threading.Event()
                stack.callback(ended.set)
                threading.Thread(target=self._send, args=(to, ended), daemon=True).start()
                lines = out.channel.makefile("rb")  # paramiko's `out` decodes its lines
                for event in iter(lambda: self._event(lines.readline(_LINE_BYTES)), None):
                    yield event
                    if event.event == "gone":
                        return
            except TimeoutError as error:
                raise NotReadyError(
                    f"the rehearsal was silent for {_SILENT_S:.0f} s", where=self.node.host
                ) from error
            except (OSError, EOFError, paramiko.SSHException) as error:
                raise explain.unreachable(self.access, str(error)) from error
            said = for_terminal(err.read(ERROR_BYTES).decode(errors="replace").strip())
            reason = (said.splitlines() or ["no reason was given"])[-1]
            raise explain.not_ready(self.access, said) or NotReadyError(
                f"the rehearsal ended: {reason}", where=self.node.host
            )

    def _send(self, to: Any, ended: threading.Event) -> None:
        """Pass on what is to be sent, and a sign of life."""
        with contextlib.suppress(OSError, paramiko.SSHException):
            while not ended.is_set():
                try:
                    line = self._lines.get(timeout=BEAT_S)
                except queue.Empty:
                    line = "beat"
                to.write(f"{line}\n".encode())
                to.flush()

    def _event(self, line: bytes) -> RankEvent | None:
        if not line:
            return None
        if not line.endswith(b"\n"):
            raise UntrustedError("a line of the rehearsal is too long", where=self.node.host)
        document = json_document(line, what="a line of the rehearsal", where=self.node.host, depth=3)
        return validated(RankEvent, document, what="a line of the rehearsal is", where=self.node.host)
