"""Where the command `headfirst-weights` begins: its packages are an extra, which may not be installed."""

from __future__ import annotations

import sys

from headfirst.common.errors import NotReadyError


def main() -> None:
    """Run the command; exit code 3 where a package of the extra `weights` is missing."""
    try:
        from headfirst.node.weights import cli
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("headfirst"):
            raise
        failure = NotReadyError(
            f"headfirst-weights needs the package {error.name}, which is not installed",
            hint="Install it: pip install 'headfirst[weights]'; in a checkout: pip install '.[weights]'",
        )
        sys.stderr.write(f"{failure}\n")
        sys.exit(failure.exit_code)
    cli.main()
