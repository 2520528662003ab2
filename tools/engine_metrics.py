#!/usr/bin/env python3
"""Lists the metrics that an engine's source defines, as they are published.

Usage: tools/engine_metrics.py SGLang|vLLM|LMDeploy VERSION FILE > tests/unit/data/metrics/ENGINE-VERSION.txt
FILE is, of that version, sglang/srt/observability/metrics_collector.py, vllm/v1/metrics/loggers.py or
lmdeploy/metrics/loggers.py. A counter is published with `_total`, whether its name has it or not.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_KIND = r"(gauge|counter|histogram)(?:_cls)?\(\s*(?:#[^\n]*\n\s*)*"
_DEFINED = re.compile(_KIND + r"""name=["'](\w+:\w+)["']""", re.IGNORECASE)


def published(text: str) -> dict[str, str]:
    """Kind (gauge, counter, histogram) by the name that samples, or the parts of a histogram, begin with."""
    kinds = {}
    for kind, name in _DEFINED.findall(text):
        counter = kind.lower() == "counter"
        kinds[name.removesuffix("_total") + "_total" if counter else name] = kind.lower()
    return kinds


def main() -> None:
    """Print the list."""
    title, version, file = sys.argv[1:]
    source = "/".join(part for part in Path(file).parts[-4:] if part != "site-packages")
    print(f"# {title} {version}, {source}, by tools/engine_metrics.py.")
    for name, kind in sorted(published(Path(file).read_text(encoding="utf-8")).items()):
        print(f"{name} {kind}")


if __name__ == "__main__":
    main()
