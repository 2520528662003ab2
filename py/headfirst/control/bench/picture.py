"""Throughput over latency as an SVG file: one line a run, one point a load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from headfirst.common.untrusted import for_terminal
from headfirst.control.bench.result import Point

WIDTH, HEIGHT = 760, 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 30, 50, 64
# Distinguishable for people who do not see all colours (Okabe and Ito).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_TICKS = 5


def svg(title: str, lines: Sequence[tuple[str, Sequence[Point]]]) -> str:
    """The picture, with a line for each named run; loads at which no request was answered have no point."""
    runs = [(name, [_place(point) for point in points if point.e2e]) for name, points in lines]
    places = [place for _, run in runs for place in run]
    top_x, step_x = _scale(max((x for x, _, _ in places), default=1.0))
    top_y, step_y = _scale(max((y for _, y, _ in places), default=1.0))

    def at(x: float, y: float) -> tuple[float, float]:
        across, up = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
        return round(_LEFT + across * x / top_x, 1), round(HEIGHT - _BOTTOM - up * y / top_y, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, 24, title, "middle", size=15),
        _text(WIDTH / 2, HEIGHT - 14, "time to the end of an answer, median, s", "middle"),
        f'<g transform="translate(18 {HEIGHT / 2}) rotate(-90)">'
        f"{_text(0, 0, 'output tokens/s', 'middle')}</g>",
    ]
    for number in range(round(top_x / step_x) + 1):
        x, y = at(number * step_x, 0)
        parts.append(_text(x, y + 18, f"{number * step_x:g}", "middle"))
        parts.append(_rule(x, y, *at(number * step_x, top_y)))
    for number in range(round(top_y / step_y) + 1):
        x, y = at(0, number * step_y)
        parts.append(_text(x - 8, y + 4, f"{number * step_y:g}", "end"))
        parts.append(_rule(x, y, *at(top_x, number * step_y)))
    for number, (name, run) in enumerate(runs):
        colour = _COLOURS[number % len(_COLOURS)]
        spots = [(*at(x, y), label) for x, y, label in run]
        path = " ".join(f"{x},{y}" for x, y, _ in spots)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y, label in spots:
            parts.append(f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>')
            parts.append(_text(x + 7, y - 7, label))
        parts.append(
            f'<rect x="{_LEFT + 12}" y="{_TOP + 8 + 18 * number}" width="12" height="4" fill="{colour}"/>'
        )
        parts.append(_text(_LEFT + 30, _TOP + 14 + 18 * number, name))
    return "\n".join([*parts, "</svg>", ""])


def _place(point: Point) -> tuple[float, float, str]:
    return (point.e2e.p50 if point.e2e else 0.0), point.output_rate, str(point.load)


def _scale(highest: float) -> tuple[float, float]:
    """The end of an axis and the step of its ticks: 1, 2 or 5 times a power of ten."""
    raw = (highest or 1.0) * 1.1 / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    return step * math.ceil((highest or 1.0) * 1.05 / step), step


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> str:
    shown = escape(for_terminal(text))
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}">{shown}</text>'


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#dddddd"/>'
