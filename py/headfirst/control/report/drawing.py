"""A topology as SVG text: deterministic, without fonts or anything else from outside.

Colours follow the reader's light or dark scheme. Widths of texts are estimated, since no font is measured.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree as xml

from headfirst.common.untrusted import for_terminal
from headfirst.control.report.topology import Box, ServiceBoxes, Topology, TopologyLink, topology
from headfirst.decide.plan.types import Plan

_SVG = "http://www.w3.org/2000/svg"
WIDTH = 1180  # of a row of boxes; a single wider box widens the drawing
MOST_LINKS = 60  # rows of the list below the drawing
_SOURCES_IN_A_LINE = 3
_LONGEST = 160  # characters of a line
_LETTER, _WIDE = 7.7, 13.0  # px of a letter and of a full-width one, at 12 px
_LINE, _PAD, _GAP, _FRAME = 16, 10, 26, 14
_GPU, _GPUS_A_ROW = 12, 8
_LANE, _HEAD = 5, 9  # px between two lines side by side, and of the head of an arrow

# One rule for both schemes; every selector begins with the class, so that a page around it is not changed.
STYLE = """
.hf { --paper: #ffffff; --ink: #1b1f24; --dim: #57606a; --line: #8c959f; --box: #f6f8fa; --rank: #ddf4ff;
 --entry: #fff8c5; --gpu: #1a7f37; --watch: #fbefff; font: 12px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { .hf { --paper: #0d1117; --ink: #e6edf3; --dim: #9198a1; --line: #6e7681;
 --box: #161b22; --rank: #0c2d6b; --entry: #3b2e00; --gpu: #3fb950; --watch: #2b1a44; } }
.hf .paper { fill: var(--paper); }
.hf text { fill: var(--ink); }
.hf .dim { fill: var(--dim); }
.hf .head { font-weight: 600; }
.hf .big { font-size: 16px; font-weight: 600; }
.hf rect { fill: var(--box); stroke: var(--line); }
.hf rect.paper { stroke: none; }
.hf rect.rank { fill: var(--rank); }
.hf rect.entry, .hf rect.people { fill: var(--entry); }
.hf rect.monitoring { fill: var(--watch); }
.hf rect.spare, .hf rect.group { stroke-dasharray: 5 3; }
.hf rect.frame { fill: none; }
.hf rect.gpu { fill: var(--gpu); stroke: none; }
.hf polyline { fill: none; stroke: var(--line); stroke-width: 1.2; }
.hf polyline.rendezvous { stroke-dasharray: 2 3; }
.hf polyline.figures { stroke-dasharray: 6 4; }
.hf polyline.kv { stroke: var(--gpu); stroke-width: 2; }
.hf polygon.kv { fill: var(--gpu); }
"""


class _Place(NamedTuple):
    x: float
    y: float
    width: float
    height: float


def svg(plan: Plan) -> str:
    """The drawing of a plan as a file."""
    return draw(topology(plan))


def draw(graph: Topology) -> str:
    """The drawing; XML 1.0, and valid inside an HTML page."""
    return _Drawing(graph).text()


class _Drawing:
    """Places everything from top to bottom; frames are under links, links under boxes.

    A line leaves its box at the top, into the space that is kept free above each row of boxes, and goes down
    or up beside all texts: inside the frame of a replica, or at the left of the drawing. Links of one program
    share a line.
    """

    def __init__(self, graph: Topology) -> None:
        self._graph = graph
        self._names = {box.id: box.name for box in graph.boxes}
        self._places: dict[str, _Place] = {}
        self._frame_of: dict[str, float] = {}  # by the id of a box, where the frame of its replica begins
        boxes = [replica.boxes for service in graph.services for replica in service.replicas]
        self._frame_numbers = {box.id: number for number, among in enumerate(boxes) for box in among}
        outer = dict.fromkeys(_shared(link) for link in graph.links if not self._is_inside(link))
        self._lanes = {name: number for number, name in enumerate(outer, 1)}
        self._free = _LANE * (len(outer) + 2)  # above a row of boxes
        self._left = _GAP + _LANE * len(outer)
        self._right = 0.0
        self._bottom = 0.0
        self._frames = xml.Element("g")
        self._links = xml.Element("g")
        self._boxes = xml.Element("g")
        self._texts = xml.Element("g")

    def text(self) -> str:
        graph = self._graph
        self._put_text(self._left, 34, f"Cluster {graph.cluster}", "big")
        self._bottom = 50
        self._row("", graph.entry)
        for service in graph.services:
            self._service(service)
        if graph.spares:
            self._row("Spares: weights and image, no rank", graph.spares)
        if graph.monitoring:
            self._row("Monitoring", graph.monitoring)
        self._list()
        for link in graph.links:
            self._link(link)
        return self._document()

    def _document(self) -> str:
        width, height = round(self._right + _GAP), round(self._bottom + _GAP)
        root = xml.Element(
            "svg",
            {
                "xmlns": _SVG,
                "class": "hf",
                "viewBox": f"0 0 {width} {height}",
                "width": str(width),
                "height": str(height),
                "role": "img",
            },
        )
        xml.SubElement(root, "title").text = _clean(f"Topology of cluster {self._graph.cluster}")
        xml.SubElement(root, "style").text = STYLE
        xml.SubElement(root, "rect", {"class": "paper", "width": str(width), "height": str(height)})
        root.extend([self._frames, self._links, self._boxes, self._texts])
        return xml.tostring(root, encoding="unicode") + "\n"

    def _row(self, title: str, boxes: Sequence[Box]) -> None:
        """Boxes under a heading, as many in a row as there is room for."""
        if title:
            self._put_text(self._left, self._bottom + _GAP + 4, title, "head")
            self._bottom += _GAP
        size = _flow(boxes, WIDTH, self._free)
        top = self._bottom + _FRAME + self._free
        self._put_boxes(boxes, size, self._left, top)
        self._grow(self._left + size.width, top + size.height)

    def _service(self, service: ServiceBoxes) -> None:
        """A frame with a frame for each replica."""
        top = self._bottom + _GAP + 8
        left = self._left + _FRAME
        self._put_text(left, top + 22, service.title, "head")
        y = top + 22.0
        lines = [*service.lines, *([service.transfer] if service.transfer else [])]
        for line in lines:
            y += _LINE
            self._put_text(left, y, line, "dim")
        right = max(left + _width(text) for text in (service.title, *lines))
        x, y, low = float(left), y + _FRAME, y
        role = service.replicas[0].role
        # As many for each replica, so that no line above the boxes of one meets the words of another.
        count = max(1 + len(replica.network) for replica in service.replicas)
        for replica in service.replicas:
            size = _flow(replica.boxes, WIDTH - 4 * _FRAME, self._free)
            words = [replica.title, *replica.network]
            above = _LINE * count + _FRAME + self._free
            width = max(size.width, *map(_width, words)) + 2 * _FRAME
            height = size.height + above + _FRAME
            if replica.role != role or (x > left and x + width > self._left + WIDTH - _FRAME):
                x, y, role = float(left), low + _FRAME, replica.role
            self._frame_of |= dict.fromkeys((box.id for box in replica.boxes), x)
            self._put_rect(self._frames, _Place(x, y, width, height), "frame")
            for number, word in enumerate(words, 1):
                self._put_text(x + _FRAME, y + 4 + _LINE * number, word, "head" if number == 1 else "dim")
            self._put_boxes(replica.boxes, size, x + _FRAME, y + above)
            low, right = max(low, y + height), max(right, x + width)
            x += width + _FRAME
        frame = _Place(self._left, top, right + _FRAME - self._left, low + _FRAME - top)
        self._put_rect(self._frames, frame, "frame")
        self._grow(frame.x + frame.width, frame.y + frame.height)

    def _list(self) -> None:
        """Every link in words, links alike in one line, and what is grouped."""
        y = self._bottom + _GAP + 8
        self._put_text(self._left, y, "Connections", "head")
        lines = self._link_lines()
        shown = lines[:MOST_LINKS]
        if len(lines) > MOST_LINKS:
            rest = len(lines) - MOST_LINKS
            shown.append(f"and {rest} more lines of connections; `deploy report --json` lists each")
        for line in [*shown, *self._graph.notes]:
            y += _LINE
            self._put_text(self._left, y, line, "" if line in shown else "dim")
            self._grow(self._left + _width(line), y)

    def _link_lines(self) -> list[str]:
        """The links as sentences, those alike of several sources in one."""
        sources: dict[tuple[str, tuple[int, ...], str], list[str]] = {}
        for link in self._graph.links:
            sources.setdefault((link.target, tuple(link.ports), link.what), []).append(
                self._names[link.source]
            )
        lines = []
        for (target, ports, what), origins in sources.items():
            more = len(origins) - _SOURCES_IN_A_LINE
            source = ", ".join(origins[:_SOURCES_IN_A_LINE]) + (f" and {more} more" if more > 0 else "")
            lines.append(_in_words(source, self._names[target], ports, what))
        return lines

    def _is_inside(self, link: TopologyLink) -> bool:
        """Whether it connects boxes of one replica."""
        source, target = (self._frame_numbers.get(id) for id in (link.source, link.target))
        return source is not None and source == target

    def _link(self, link: TopologyLink) -> None:
        """A line between two boxes; that of the KV cache has a head."""
        start, end = self._places[link.source], self._places[link.target]
        inside = self._is_inside(link)
        number = 0 if inside else self._lanes[_shared(link)]
        side = self._frame_of[link.source] + _FRAME / 2 if inside else self._left - _LANE * number
        # Lines that arrive at a box and that leave it are side by side.
        x1, x2 = (
            place.x + _PAD + part + _LANE * number % (place.width / 2 - _PAD)
            for place, part in ((start, 0), (end, end.width / 2 - _PAD))
        )
        y1, y2 = (place.y - _LANE * (number + 1) for place in (start, end))
        corners = [
            (x1, start.y),
            (x1, y1),
            *([(side, y1), (side, y2)] if y1 != y2 else []),
            (x2, y2),
            (x2, end.y),
        ]
        line = xml.SubElement(
            self._links,
            "polyline",
            {
                "class": link.kind,
                "points": _points(corners),
                "data-from": _clean(link.source),
                "data-to": _clean(link.target),
                "data-ports": " ".join(map(str, link.ports)),
            },
        )
        words = _in_words(self._names[link.source], self._names[link.target], link.ports, link.what)
        xml.SubElement(line, "title").text = _clean(words)
        if link.kind == "kv":
            head = [(x2, end.y), (x2 - _HEAD / 2, end.y - _HEAD), (x2 + _HEAD / 2, end.y - _HEAD)]
            xml.SubElement(self._links, "polygon", {"class": "kv", "points": _points(head)})

    def _put_boxes(self, boxes: Sequence[Box], size: _Flow, left: float, top: float) -> None:
        for box, (x, y) in zip(boxes, size.corners, strict=True):
            place = _Place(left + x, top + y, size.box_width, _box_height(box))
            self._places[box.id] = place
            group = xml.SubElement(self._boxes, "g", {"data-box": _clean(box.id)})
            xml.SubElement(group, "title").text = _clean("\n".join([box.name, *box.lines]))
            self._put_rect(group, place, box.kind)
            y = place.y + _PAD + 2
            for number, line in enumerate([box.title, *box.lines]):
                y += _LINE
                self._put_text(place.x + _PAD, y - 4, line, "" if number else "head", group)
            for number, name in enumerate(box.gpus):
                row, column = divmod(number, _GPUS_A_ROW)
                corner = _Place(place.x + _PAD + column * (_GPU + 3), y + row * (_GPU + 3) + 2, _GPU, _GPU)
                square = self._put_rect(group, corner, "gpu")
                xml.SubElement(square, "title").text = _clean(f"GPU {name}")

    def _put_rect(self, parent: xml.Element, place: _Place, kind: str) -> xml.Element:
        words = dict(zip(("x", "y", "width", "height"), map(_number, place), strict=True))
        return xml.SubElement(parent, "rect", {"class": kind, "rx": "1" if kind == "gpu" else "6", **words})

    def _put_text(
        self, x: float, y: float, text: str, kind: str = "", parent: xml.Element | None = None
    ) -> None:
        words = {"class": kind} if kind else {}
        into = self._texts if parent is None else parent
        element = xml.SubElement(into, "text", {"x": _number(x), "y": _number(y), **words})
        element.text = _shown(text)
        self._right = max(self._right, x + _width(text) * (1.4 if kind == "big" else 1))

    def _grow(self, right: float, bottom: float) -> None:
        self._right, self._bottom = max(self._right, right), max(self._bottom, bottom)


def _shared(link: TopologyLink) -> tuple[str, str]:
    """What the links that share a line have in common: where they begin, or the rendezvous where they end."""
    return link.kind, link.target if link.kind == "rendezvous" else link.source


def _points(corners: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in corners)


def _in_words(source: str, target: str, ports: Sequence[int], what: str) -> str:
    at = f" port {', '.join(map(str, ports))}" if ports else ""
    return f"{source} → {target}{at}: {what}"


class _Flow(NamedTuple):
    """Boxes of one width in rows: their corners, and the size of all together."""

    corners: list[tuple[float, float]]
    box_width: float
    width: float
    height: float


def _flow(boxes: Sequence[Box], most: float, free: float) -> _Flow:
    box_width = max((_box_width(box) for box in boxes), default=0.0)
    a_row = max(1, int((most + _GAP) // (box_width + _GAP)))
    corners: list[tuple[float, float]] = []
    y = height = 0.0
    for first in range(0, len(boxes), a_row):
        row = boxes[first : first + a_row]
        corners += [(number * (box_width + _GAP), y) for number in range(len(row))]
        height = y + max(map(_box_height, row))
        y = height + max(_GAP, free + _LANE)
    columns = min(a_row, len(boxes))
    return _Flow(corners, box_width, columns * (box_width + _GAP) - _GAP, height)


def _box_width(box: Box) -> float:
    gpus = min(len(box.gpus), _GPUS_A_ROW) * (_GPU + 3)
    return max(96.0, gpus, *map(_width, (box.title, *box.lines))) + 2 * _PAD


def _box_height(box: Box) -> float:
    rows = -(-len(box.gpus) // _GPUS_A_ROW)
    return 2 * _PAD + _LINE * (1 + len(box.lines)) + rows * (_GPU + 3)


def _width(text: str) -> float:
    return sum(_WIDE if unicodedata.east_asian_width(char) in "WF" else _LETTER for char in _shown(text))


def _shown(text: str) -> str:
    clean = _clean(text).replace("\n", " ")
    return clean if len(clean) <= _LONGEST else clean[: _LONGEST - 1] + "…"


def _clean(text: str) -> str:
    """Text that XML 1.0 may hold."""
    return "".join(char for char in for_terminal(text) if char not in "\ufffe\uffff")


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
