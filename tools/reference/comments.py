"""Descriptions of fields: the comments behind them, which is where the code states units and values."""

from __future__ import annotations

import ast
import inspect
import textwrap


def of_fields(kind: type) -> dict[str, str]:
    """Field → the comment behind it, of the class itself and not of those that it inherits from."""
    lines = textwrap.dedent(inspect.getsource(kind)).splitlines()
    comments = {}
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.end_lineno:
            _, mark, comment = lines[node.end_lineno - 1][node.end_col_offset :].partition("# ")
            if mark and not comment.startswith("noqa"):
                comments[node.target.id] = comment.strip()
    return comments
