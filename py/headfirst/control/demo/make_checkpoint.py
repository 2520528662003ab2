"""Makes the demo checkpoint again: `python -m headfirst.control.demo.make_checkpoint OUT`.

Writes OUT/checkpoint and OUT/answers.json; in the repository, OUT is py/headfirst/control/demo.
Needs torch 2.13, transformers 5.19 (with tokenizers and safetensors) and numpy; Headfirst itself does not.
Two CPU cores take about six minutes. glibc gives freed memory back too eagerly for training; with
MALLOC_MMAP_THRESHOLD_=4000000000 and MALLOC_TRIM_THRESHOLD_=8000000000 set, it is twice as fast.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file
from transformers import (  # type: ignore[import-not-found]  # dev only
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from headfirst.control.demo import architecture, shards, tokenizer, training
from headfirst.control.demo.architecture import CONFIG, without_quantization
from headfirst.control.demo.corpus import Conversation, Corpus, Sampler


@dataclass(frozen=True)
class AnswerVerdict:
    """How a conversation's last answer came out; `margin` is the least top-1 minus top-2 logit along it."""

    conversation: Conversation
    correct: bool
    margin: float


def load(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the checkpoint in `folder`, converted to BF16, as transformers loads it."""
    with TemporaryDirectory() as name:
        converted = Path(name)
        save_file(shards.read_as_bf16(folder), converted / "model.safetensors", metadata={"format": "pt"})
        shards.write_json(converted / "config.json", without_quantization())
        for file in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(folder / file, converted)
        model = AutoModelForCausalLM.from_pretrained(converted, dtype=torch.bfloat16)
        return model.eval(), AutoTokenizer.from_pretrained(converted)


def judge(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, conversation: Conversation
) -> AnswerVerdict:
    """Compare the model's choice at every token of the last answer, the end token included."""
    messages = [{"role": "system", "content": conversation.system}] if conversation.system else []
    for question, answer in conversation.turns:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    prompt = tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True, return_dict=False)
    whole = tokenizer.apply_chat_template(messages, return_dict=False)
    with torch.inference_mode():
        logits = model(torch.tensor([whole])).logits[0, len(prompt) - 1 : -1].float()
    best = logits.topk(2)
    correct = best.indices[:, 0].tolist() == whole[len(prompt) :]
    return AnswerVerdict(conversation, correct, float((best.values[:, 0] - best.values[:, 1]).min()))


SEED = 0
MIXED_CONVERSATIONS = 300  # with system prompts, histories and careless spelling


def make(out: Path) -> bool:
    """Train, write and check; return whether every trained answer is reproduced."""
    corpus, folder = Corpus.load(), out / "checkpoint"
    folder.mkdir(parents=True, exist_ok=True)
    words = tokenizer.train(corpus.texts(), CONFIG["vocab_size"])
    tokenizer.save(words, folder, CONFIG["max_position_embeddings"])
    model = training.train(corpus, words, SEED)
    shards.write(architecture.widened(training.hub_tensors(model)), folder)
    shards.write_json(out / "answers.json", corpus.answers())
    return check(corpus, folder)


def check(corpus: Corpus, folder: Path) -> bool:
    """Print how the stored model answers; return whether each question, asked alone, gets its answer."""
    model, words = load(folder)
    alone = [Conversation("", [turn]) for turn in corpus.answers().items()]
    sampler = Sampler(corpus, SEED + 1)
    mixed = [sampler.draw() for _ in range(MIXED_CONVERSATIONS)]
    correct = {}
    for kind, conversations in (("alone", alone), ("mixed", mixed)):
        verdicts = [judge(model, words, conversation) for conversation in conversations]
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
