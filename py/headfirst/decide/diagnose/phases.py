"""What a start spent its time on, by the lines of its log."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import Profile
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line

FIRST = "container started"
_NUMBERS = re.compile(r" \d+/\d+")  # of shards


def phases(log: Profile, lines: Iterable[Line], began: float, ended: float) -> dict[str, float]:
    """Seconds from the beginning of each of the engine's stages to that of the next one, in their order."""
    marks = {FIRST: began}
    for line in lines:
        if line.at <= ended and (stage := log.doing([line.text])):
            marks.setdefault(_NUMBERS.sub("", stage), line.at)
    times = [*marks.values(), ended]
    return {name: round(max(0.0, times[at + 1] - times[at]), 1) for at, name in enumerate(marks)}
