"""A line of a log: whose it is, when, and its text, without what Docker, kubectl, journald or Slurm add."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any, NamedTuple

from headfirst.common.untrusted import UntrustedError, for_terminal, json_document

_PREFIX_CHARS = 200
_DAY = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?"
_ZONED = rf"(?P<zoned>{_DAY}(?:Z|[+-]\d\d:?\d\d))"
_SHORT = r"(?P<short>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)(?:\.\d+)?"
_WRAPPERS = [
    re.compile(pattern)
    for pattern in (
        r"\[(?P<source>pod/[\w.-]+/[\w.-]+)\] ",  # kubectl logs --prefix
        # journalctl
        rf"(?:{_ZONED}|{_SHORT}) (?P<source>[\w.-]+ (?:[\w./@-]+\[\d+\]|kernel|dockerd|kubelet)): ",
        rf"\[?{_ZONED}\]? (?:std(?:out|err) [FP](?: |$))?",  # docker and kubectl --timestamps; containerd
        r"(?!ERROR|WARN|INFO|DEBUG)(?P<source>[A-Za-z0-9][\w.-]*) *\| ?",  # docker compose logs
        r" *(?P<task>\d{1,5}): ",  # srun --label
        # stern: pod and container
        r"(?P<source>[a-z0-9][a-z0-9.-]*-(?:[a-z0-9]{5}|\d{1,4}) [a-z][a-z0-9-]*) (?=[\[(\d]|[A-Z]{4,8}[: ])",
    )
]
_RANK = re.compile(
    r"\[\d{4}-\S+ \d\d:\d\d:\d\d\S* ((?:[A-Z]{2,3}\d+ ?)+)\]"
    r"|\(([A-Z]\w+(?: rank=\d+)?) pid=\d+(, ip=[\d.]+)?\)"
    r"|\[(rank\d+|default\d+)\]:|^([\w.-]+):\d+:\d+ \[\d+\] "
)
_TIME = re.compile(
    rf"(?P<local>{_DAY})|\b(?P<engine>\d\d-\d\d \d\d:\d\d:\d\d)\b"
    # glog; PyTorch, which writes no zero before a month of one digit; TurboMind
    r"|(?:\b[EFIW]|\[)(?P<glog>\d{3,4}[ .]\d\d:\d\d:\d\d)\."
)
# Of times without a year.
_FORMATS = {"short": "%Y %b %d %H:%M:%S", "engine": "%Y %m-%d %H:%M:%S", "glog": "%Y %m%d %H:%M:%S"}
_CLOCKS = {"microseconds": "zoned", "glog": "engine"}


class LogLine(NamedTuple):
    """`source` is named by what collected the line, `rank` by the engine; "" where neither names one.

    `at`: seconds by `clock`, which is "" for a line without a time; only times of one clock compare.
    """

    source: str
    rank: str
    clock: str
    at: float
    text: str

    def in_year_of(self, other: LogLine | None) -> LogLine:
        """A line whose time has no year by the clock of another one, "local", of the same container."""
        if other is None or self.clock != "engine":
            return self
        moment = datetime.fromtimestamp(self.at, timezone.utc)
        month = moment.replace(day=1, hour=0, minute=0, second=0)
        year = datetime.fromtimestamp(other.at, timezone.utc).year
        at = (month.replace(year=year) + (moment - month)).timestamp()
        return self._replace(clock=other.clock, at=at)


def log_line(line: bytes, limit: int) -> LogLine:
    """A line, harmless; of one that redraws itself the last state. `limit`: characters of its text."""
    text = line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]
    sources, times = [], {}
    while fields := _unwrapped(text):
        text = fields.pop("text")
        task = fields.pop("task", None)
        sources += [source] if (source := f"task {task}" if task else fields.pop("source", None)) else []
        times.update({clock: time for clock, time in fields.items() if time})
    text = for_terminal(text[:limit])
    start = text[:_PREFIX_CHARS]
    match = None if times else _TIME.search(start)
    for clock, time in (match.groupdict() if match else times).items():
        if time and (at := _seconds(clock, time)) is not None:
            clock = _CLOCKS.get(clock, clock)
            break
    else:
        clock, at = "", 0.0
    named = ["".join(filter(None, match.groups())).strip() for match in _RANK.finditer(start)]
    return LogLine(for_terminal(" ".join(sources)), " ".join(dict.fromkeys(named)), clock, at, text)


def _unwrapped(text: str) -> dict[str, Any] | None:
    """The text with one wrapper less, and what that names; None where there is none."""
    if text.startswith("{"):
        return _of_json(text)
    match = next((match for wrapper in _WRAPPERS if (match := wrapper.match(text))), None)
    return {**match.groupdict(), "text": text[match.end() :]} if match else None


def _of_json(text: str) -> dict[str, Any] | None:
    """An entry of Docker's json-file or of `journalctl -o json`; None for other JSON."""
    try:
        entry = json_document(text, what="the line", depth=8)
    except UntrustedError:
        return None
    if isinstance(entry.get("log"), str):
        return {"text": entry["log"].rstrip("\r\n"), "zoned": str(entry.get("time", ""))}
    message = entry.get("MESSAGE")
    if isinstance(message, list):  # as journald writes bytes that are not printable
        message = bytes(byte for byte in message if byte in range(256)).decode("utf-8", "replace")
    if not isinstance(message, str):
        return None
    names = (entry.get("_HOSTNAME"), entry.get("CONTAINER_NAME") or entry.get("SYSLOG_IDENTIFIER"))
    source = " ".join(str(name) for name in names if name)
    return {"text": message, "source": source, "microseconds": str(entry.get("__REALTIME_TIMESTAMP", ""))}


def _seconds(clock: str, time: str) -> float | None:
    try:
        if clock == "microseconds":
            return float(time) / 1e6
        form = _FORMATS.get(clock)
        moment = (
            datetime.strptime(f"2000 {time.replace('.', ' '):0>13}", form)
            if form
            else datetime.fromisoformat(time)
        )
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
