"""YAML as people write it: keys in their order, texts of several lines as blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from headfirst.decide.render.header import comment


class _Dumper(yaml.SafeDumper):
    """Without anchors, which not every reader expects."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def documents(header: Sequence[str], *values: Any) -> str:
    """The values as one YAML file below the header."""
    text = yaml.dump_all(
        values, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=100, allow_unicode=True
    )
    return comment(header) + text
