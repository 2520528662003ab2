"""The entry point of `deploy`: every error becomes one paragraph and an exit code."""

from __future__ import annotations

import json
import sys
import textwrap

from headfirst.common.errors import HeadfirstError


def main() -> None:
    """Run the command line. Ctrl-C at any moment ends with exit code 1 and no traceback."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal without UTF-8 shows "?"
    try:
        # Inside the try: Ctrl-C may arrive while the modules are imported.
        from headfirst.control.cli.app import app

        app()
    except HeadfirstError as error:
        _print(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(HeadfirstError.exit_code)


def _print(error: HeadfirstError) -> None:
    if "--json" in sys.argv[1:]:
        print(json.dumps({"error": {"what": error.what, "where": error.where, "hint": error.hint}}))
        return
    from headfirst.control.terminal import Terminal

    what = f"{error.where}: {error.what}" if error.where else error.what
    console = Terminal(stderr=True, highlight=False)
    console.paragraph(f"error: {what}", title="error:")
    if error.hint:
        console.paragraph(textwrap.indent(error.hint, "  "))


if __name__ == "__main__":
    main()
