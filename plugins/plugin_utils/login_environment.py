"""The environment of commands on the controller that stand for those of a login over SSH."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# /etc/environment sets these for a login, too.
_KEPT = ("http_proxy", "https_proxy", "no_proxy")


def login_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a new login of this user has.

    The rest belongs to the shell that started `deploy`: the PATH of a virtual environment, PYTHONPATH,
    DOCKER_HOST of another machine.
    """
    user = pwd.getpwuid(os.geteuid())
    variables = {name: value for name, value in environment.items() if name.lower() in _KEPT}
    names = dict.fromkeys(("USER", "LOGNAME"), user.pw_name)
    return {**names, "HOME": user.pw_dir, "PATH": _PATH, "LANG": "C.UTF-8", **variables}
