"""Makes the demo checkpoint again: `python -m headfirst.control.demo.make_checkpoint OUT`.

Writes OUT/checkpoint and OUT/answers.json; in the repository, OUT is py/headfirst/control/demo.
Needs torch 2.13, transformers 5.19 (with tokenizers and safetensors) and numpy; Headfirst itself does not.
Two CPU cores take about six minutes. glibc gives freed memory back too eagerly for training; with
MALLOC_MMAP_THRESHOLD_=4000000000 and MALLOC_TRIM_THRESHOLD_=8000000000 set, it is twice as fast.
"""

from __future__ import annotations

import sys
from pathlib import Path

from headfirst.control.demo import shards, tokenizer, training, verification, widening
from headfirst.control.demo.architecture import CONFIG
from headfirst.control.demo.corpus import Conversation, Corpus, Sampler

SEED = 0
MIXED_CONVERSATIONS = 300  # with system prompts, histories and careless spelling


def make(out: Path) -> bool:
    """Train, write and check; return whether every trained answer is reproduced."""
    corpus, folder = Corpus.load(), out / "checkpoint"
    folder.mkdir(parents=True, exist_ok=True)
    words = tokenizer.train(corpus.texts(), CONFIG["vocab_size"])
    tokenizer.save(words, folder, CONFIG["max_position_embeddings"])
    model = training.train(corpus, words, SEED)
    shards.write(widening.widened(training.hub_tensors(model)), folder)
    shards.write_json(out / "answers.json", corpus.answers())
    return check(corpus, folder)


def check(corpus: Corpus, folder: Path) -> bool:
    """Print how the stored model answers; return whether each question, asked alone, gets its answer."""
    model, words = verification.load(folder)
    alone = [Conversation("", [turn]) for turn in corpus.answers().items()]
    sampler = Sampler(corpus, SEED + 1)
    mixed = [sampler.draw() for _ in range(MIXED_CONVERSATIONS)]
    correct = {}
    for kind, conversations in (("alone", alone), ("mixed", mixed)):
        verdicts = [verification.judge(model, words, conversation) for conversation in conversations]
        correct[kind] = sum(verdict.correct for verdict in verdicts)
        worst = min(verdicts, key=lambda verdict: verdict.margin)
        print(f"{kind}: {correct[kind]} of {len(verdicts)} answers as trained")
        print(f"{kind}: least logit margin {worst.margin:.3f}, at {worst.conversation.turns[-1][0]!r}")
        for verdict in verdicts:
            if not verdict.correct:
                print(f"{kind}: not as trained: {verdict.conversation}")
    return correct["alone"] == len(alone)


if __name__ == "__main__":
    sys.exit(0 if make(Path(sys.argv[1])) else 1)
