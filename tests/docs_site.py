"""The site of docs/, built as tools/site.sh does it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from documented import ROOT


def built(folder: Path) -> Path:
    """Builds into `folder`. Any attempt to reach a network would end at a proxy that is not there."""
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder
