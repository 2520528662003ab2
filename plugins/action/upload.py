"""Action: send one large file over the connection in pieces; take up an interrupted transfer."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.headfirst.serving.plugins.modules import upload as documented
from ansible_collections.headfirst.serving.plugins.plugin_utils.gated_action import (
    GatedAction,
    argument_spec,
    report,
)

CHUNK = 32 * 2**20
_SIZE = re.compile(r"-1|[0-9]{1,18}")


class ActionModule(GatedAction):
    """Unlike ansible.builtin.copy, needs no space in the login user's home and can be taken up again."""

    _supports_check_mode = True
    ARGUMENTS = argument_spec(documented.DOCUMENTATION)
    RETURNS = ("dest", "size", "sent")

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return {changed, dest, size, sent}, in bytes; AnsibleActionFail when the host cannot take it."""
        source, dest = Path(arguments["src"]), arguments["dest"]
        if not source.is_file():
            raise AnsibleActionFail(f"There is no file {source} on the controller.")
        size = source.stat().st_size
        if self._size(dest) == size:
            return {"changed": False, "dest": dest, "size": size, "sent": 0}
        if self._task.check_mode:
            return {"changed": True, "dest": dest, "size": size, "sent": 0}
        start = min(max(self._size(f"{dest}.part"), 0), size)
        progress = partial(report, self._host, arguments["what"], total=size, unit="bytes")
        self._send(source, f"{dest}.part", start, progress)
        self._command(f"mv {shlex.quote(dest + '.part')} {shlex.quote(dest)}")
        return {"changed": True, "dest": dest, "size": size, "sent": size - start}

    def _send(self, source: Path, part: str, start: int, progress: Callable[..., None]) -> None:
        done = start
        with source.open("rb") as file:
            file.seek(start)
            while chunk := file.read(CHUNK):
                # At a given offset, so that a piece which is sent twice does no harm.
                self._command(
                    f"umask 077; dd of={shlex.quote(part)} bs=1M iflag=fullblock oflag=seek_bytes seek={done}"
                    " conv=notrunc status=none",
                    chunk,
                )
                done += len(chunk)
                progress(done=done, note=source.name)

    def _size(self, path: str) -> int:
        """Bytes of a file on the host, -1 when it is not there."""
        text = self._command(f"stat -c %s {shlex.quote(path)} 2>/dev/null || echo -1").strip()
        if not _SIZE.fullmatch(text):
            raise AnsibleActionFail(f"{self._host} reports no size of {path}: {text[:60]}")
        return int(text)

    def _command(self, command: str, data: bytes | None = None) -> str:
        answer = self.ask_shell(command, data)
        if answer["rc"] != 0:
            raise AnsibleActionFail(
                f"{command.split(' of=')[0]} failed on the host: {answer['stderr'].strip()}"
            )
        return str(answer["stdout"])
