#!/usr/bin/python
"""Module: dpkg in a state in which apt can work. Standard library only, Python 3.8+."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dpkg_repair
short_description: Finish what an interrupted dpkg has left, before apt is used
description:
  - Waits until no other program holds dpkg's lock. Then runs C(dpkg --configure -a) where dpkg was
    interrupted or reports packages that are not configured. Files of settings that an administrator
    changed are kept.
  - Action M(headfirst.serving.apt) does this before every use of apt.
author: The Headfirst authors (@headfirst)
attributes:
  check_mode:
    description: Changes nothing and reports whether there is something to finish.
    support: full
options:
  seconds:
    description: How long to wait for the lock.
    type: int
    default: 300
"""

EXAMPLES = r"""
- name: Finish what an interrupted dpkg has left
  headfirst.serving.dpkg_repair:
"""

RETURN = r"""
found:
  description: The report of C(dpkg --audit) before anything was done; empty where all is well.
  type: str
  returned: success
"""

import fcntl
import os
import shutil
import subprocess
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

DPKG = ["dpkg"]
ADMIN = "/var/lib/dpkg"
INTERVAL_S = 1.0
# What the administrator changed stays; there is no prompt.
CONFIGURE = ["--force-confdef", "--force-confold", "--configure", "--pending"]
# The lock is held here, so dpkg must not take it.
ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "DPKG_FRONTEND_LOCKED": "true", "LC_ALL": "C"}


def call(*argv: str) -> "subprocess.CompletedProcess[str]":
    """A run of dpkg; output and errors in one text."""
    return subprocess.run(
        [*DPKG, *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        env={**os.environ, **ENVIRONMENT},
        check=False,
    )


def lock(seconds: float) -> t.Optional[int]:
    """Descriptor of the lock that apt and dpkg's other front ends take; None where it stays held."""
    descriptor = os.open(os.path.join(ADMIN, "lock-frontend"), os.O_RDWR | os.O_CREAT, 0o640)
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                os.close(descriptor)
                return None
            time.sleep(INTERVAL_S)
        else:
            return descriptor


def unfinished() -> str:
    """What is to be finished: dpkg's report, or the journal that apt refuses to work with."""
    report = call("--audit").stdout.strip()
    journal = [name for name in os.listdir(os.path.join(ADMIN, "updates")) if name.isdigit()]
    return report or ("dpkg was interrupted" if journal else "")


def main() -> None:
    """Wait, check, repair and exit."""
    module = AnsibleModule(
        argument_spec={"seconds": {"type": "int", "default": 300}}, supports_check_mode=True
    )
    if shutil.which(DPKG[0]) is None:
        module.exit_json(changed=False, found="")
    try:
        lock_fd = lock(module.params["seconds"])
    except OSError as error:
        module.fail_json(msg=f"dpkg's lock cannot be opened: {error}.")
    if lock_fd is None:
        module.fail_json(
            msg=f"Another program has used dpkg for {module.params['seconds']} seconds. Wait until it ends "
            "(`lsof /var/lib/dpkg/lock-frontend` shows it) and run this again."
        )
    report = unfinished()
    remainder = report
    if report and not module.check_mode:
        done = call(*CONFIGURE)
        if done.returncode != 0:
            lines = " ".join(done.stdout.strip().splitlines()[-5:])
            module.fail_json(
                msg=f"dpkg was interrupted on this host, and `dpkg --configure -a` fails: {lines} "
                "Run it on the host and correct what it reports, then run this again."
            )
        remainder = unfinished()
    os.close(lock_fd)
    module.exit_json(changed=bool(report) if module.check_mode else remainder != report, found=report)


if __name__ == "__main__":
    main()
