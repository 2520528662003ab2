"""A time in which the service of a cluster runs other than the inventory has it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from headfirst.common.errors import HeadfirstError
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.verbs.up import up
from headfirst.control.run.cancel import handling
from headfirst.control.run.reporters.reporter import Reporter


@contextmanager
def restored(options: RunOptions, reporter: Reporter) -> Iterator[None]:
    """Bring the service up as `options` have it in the end, also after a failure, Ctrl-C and SIGTERM.

    HeadfirstError where that fails: then the service is not as before.
    """
    try:
        # SIGTERM and a closed terminal end the run as Ctrl-C does.
        with handling((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler):
            yield
    finally:
        try:
            up(options, reporter)
        except HeadfirstError as error:
            raise HeadfirstError(
                f"the service is not as the inventory has it: {error.what}",
                where=error.where,
                hint=f"Bring it up: deploy up {options.inventories[0]}",
            ) from error
