"""The same question to many hosts at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headfirst.common.errors import HeadfirstError
from headfirst.control.live.ssh_access.access import HostAccess
from headfirst.control.live.ssh_access.ssh import AT_ONCE

Answer = TypeVar("Answer")


def try_each(
    hosts: Sequence[HostAccess], ask: Callable[[HostAccess], Answer]
) -> dict[str, Answer | HeadfirstError]:
    """The answers by host, with the error of each host that cannot be asked in the place of its answer."""
    if not hosts:
        return {}

    def one(access: HostAccess) -> Answer | HeadfirstError:
        try:
            return ask(access)
        except HeadfirstError as error:
            return error

    with ThreadPoolExecutor(max_workers=min(len(hosts), AT_ONCE)) as pool:
        return dict(zip([access.host for access in hosts], pool.map(one, hosts), strict=True))
