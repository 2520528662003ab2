"""Action: bring one large file from a host in pieces, within the size that is expected and the free disk."""

from __future__ import annotations

import base64
import binascii
import shlex
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.headfirst.serving.plugins.action import upload
from ansible_collections.headfirst.serving.plugins.modules import download as documented
from ansible_collections.headfirst.serving.plugins.plugin_utils.gated_action import argument_spec, report

LEFT_FREE = 2**30


class ActionModule(upload.ActionModule):
    """Unlike ansible.builtin.fetch, writes no more than the host has stated before, and was expected."""

    ARGUMENTS = argument_spec(documented.DOCUMENTATION)
    RETURNS = ("dest", "size")

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return {changed, dest, size}, in bytes; AnsibleActionFail when the host sends anything else."""
        source, dest = arguments["src"], Path(arguments["dest"])
        size, free = self._size(source), shutil.disk_usage(dest.parent).free
        if not 0 <= size <= arguments["max_bytes"]:
            raise AnsibleActionFail(
                f"{self._host} reports {size} bytes for {source}, and at most {arguments['max_bytes']} are "
                "expected."
            )
        if size > free - LEFT_FREE:
            raise AnsibleActionFail(
                f"{source} of {self._host} has {size} bytes, and {dest.parent} on the controller has {free} "
                f"free, of which {LEFT_FREE} stay free. Set TMPDIR to a folder of a larger disk."
            )
        if not self._task.check_mode:
            progress = partial(report, self._host, arguments["what"], total=size, unit="bytes")
            with dest.open("xb") as file:
                while (done := file.tell()) < size:
                    file.write(self._piece(source, done, min(upload.CHUNK, size - done)))
                    progress(done=file.tell(), note=dest.name)
        return {"changed": True, "dest": str(dest), "size": size}

    def _piece(self, source: str, start: int, size: int) -> bytes:
        text = self._command(
            f"dd if={shlex.quote(source)} bs=1M iflag=skip_bytes,count_bytes,fullblock status=none"
            f" skip={start} count={size} | base64 -w0"
        )
        try:
            piece = base64.b64decode(text.strip(), validate=True)
        except binascii.Error:
            piece = b""
        if len(piece) != size:
            raise AnsibleActionFail(f"{self._host} sends another number of bytes of {source} than it stated.")
        return piece
