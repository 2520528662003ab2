"""A report as one HTML file that needs nothing else, from templates/report.html.j2.

Its Content-Security-Policy allows its own two styles by their hashes and nothing else: no script, no request.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from headfirst.collection import data_dir
from headfirst.common.untrusted import for_terminal
from headfirst.control.bench import picture
from headfirst.control.bench.result import BenchResult
from headfirst.control.report import drawing
from headfirst.control.report.types import ClusterReport
from headfirst.control.run.amounts import duration, size

_GBIT = 1e9 / 8  # bytes a second


def html(report: ClusterReport) -> str:
    """The page. Every text of the report is escaped; the drawings escape theirs."""
    environment = Environment(
        loader=FileSystemLoader(data_dir("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_clean,
    )
    style = (data_dir("templates") / "report.css").read_text(encoding="utf-8")
    policy = f"default-src 'none'; style-src {_hash(style)} {_hash(drawing.STYLE)}; base-uri 'none'"
    return environment.get_template("report.html.j2").render(
        report=report,
        style=Markup(style),  # noqa: S704 - a file of ours without variables
        policy=policy,
        topology=Markup(drawing.draw(report.topology)),  # noqa: S704 - text in it is escaped
        picture=_picture,
        ago=lambda at: _ago(at, report.made_at),
        duration=duration,
        size=size,
        gbit=lambda rate: f"{rate / _GBIT:.3f}",
    )


def _clean(value: Any) -> Any:
    """Text without control characters, which no page shows."""
    return for_terminal(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _hash(style: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"


def _picture(result: BenchResult) -> Markup:
    line = (f"{result.subject.engine} {result.subject.engine_version}", result.points)
    drawn = picture.svg(f"{result.subject.model}: {result.shape.name}", [line])
    return Markup(drawn)  # noqa: S704 - text in it is escaped


def _ago(at: str, now: str) -> str:
    """`3 days before this report`, from two times of day."""
    try:
        seconds = (datetime.fromisoformat(now) - datetime.fromisoformat(at)).total_seconds()
    except (ValueError, TypeError):
        return "at an unknown time"
    for name, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        count = int(seconds // length)
        if count >= 1:
            return f"{count} {name}{'' if count == 1 else 's'} before this report"
    return "less than a minute before this report"
