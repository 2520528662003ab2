"""Grafana's dashboards: what templates/monitoring/dashboards.yml lists, as the JSON that Grafana reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from string import ascii_uppercase
from typing import Any

_SOURCE = {"type": "prometheus", "uid": "headfirst"}  # provisioning/datasources
_ROW, _WIDTH, _HEIGHT = 24, 8, 8


def dashboard(name: str, listed: Mapping[str, Any]) -> dict[str, Any]:
    """`listed` is the entry of this name."""
    return {
        "uid": f"headfirst-{name}",
        "title": listed["title"],
        "tags": ["headfirst"],
        "timezone": "browser",
        "editable": False,
        "refresh": "15s",
        "schemaVersion": 39,
        "version": 1,
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_choice(listed["choice"])]},
        "panels": [*_panels(listed["panels"])],
    }


def _choice(label: str) -> dict[str, Any]:
    """The list in which a person chooses values of a label of the ranks."""
    return {
        "name": label,
        "label": label,
        "type": "query",
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "refresh": 2,  # whenever the time range changes
        "current": {"text": "All", "value": "$__all"},
        "datasource": _SOURCE,
        "query": {"query": f"label_values(headfirst:rank, {label})", "refId": "v"},
    }


def _panels(listed: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """From left to right, and a new row where the last one is full."""
    x = y = 0
    for number, panel in enumerate(listed, start=1):
        width = panel.get("width", _WIDTH)
        yield {
            "type": panel.get("type", "timeseries"),
            "title": panel["title"],
            "gridPos": {"h": _HEIGHT, "w": width, "x": x, "y": y},
            "datasource": _SOURCE,
            "fieldConfig": {"defaults": {"unit": panel["unit"], "min": 0}, "overrides": []},
            "options": {},
            "targets": [
                {"refId": letter, "expr": query, "legendFormat": legend}
                for letter, (legend, query) in zip(ascii_uppercase, panel["queries"].items(), strict=False)
            ],
            "id": number,
        }
        x += width
        if x >= _ROW:
            x, y = 0, y + _HEIGHT
