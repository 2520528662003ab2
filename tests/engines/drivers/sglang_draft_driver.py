"""What SGLang's own functions count of a draft model: the bytes of a token in the KV cache of both.

The question is a list of [folder of the model, arguments]; `token_bytes` of each answer is of one rank.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import sglang_memory


def main() -> None:
    """Answers one file of questions."""
    answers = []
    for model, arguments in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        with sglang_memory.gpu("H200"):
            divided = sglang_memory.divided(model, arguments)
        answers.append({"token_bytes": divided["bytes_per_token"]})
    Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
