"""The layers of each pipeline stage, by the engine's own function.

The question is {"module": …, "variable": …, "partition": "20,41", "sizes": [[layers, stages], …]}; the
answer has [[first, end], …] of the stages for each size, and last those of the partition.
"""

from __future__ import annotations

import os
from importlib import import_module

import planned_gpu


def main() -> None:
    """Answers one file of questions."""
    question = planned_gpu.question()
    function = import_module(question["module"]).get_pp_indices

    def stages(layers: int, count: int) -> list[list[int]]:
        return [function(layers, stage, count) for stage in range(count)]

    answers = [stages(*size) for size in question["sizes"]]
    partition = [int(part) for part in question["partition"].split(",")]
    os.environ[question["variable"]] = question["partition"]
    planned_gpu.write([*answers, stages(sum(partition), len(partition))])


if __name__ == "__main__":
    main()
