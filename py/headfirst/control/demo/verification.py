"""Proof that the stored weights, in BF16, answer as trained: token for token, and by what margin."""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from headfirst.control.demo import shards
from headfirst.control.demo.architecture import without_quantization
from headfirst.control.demo.corpus import Conversation


@dataclass(frozen=True)
class Verdict:
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


def judge(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, conversation: Conversation) -> Verdict:
    """Compare the model's choice at every token of the last answer, the end token included."""
    messages = [{"role": "system", "content": conversation.system}] if conversation.system else []
    for question, answer in conversation.turns:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    asked = tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True, return_dict=False)
    whole = tokenizer.apply_chat_template(messages, return_dict=False)
    with torch.inference_mode():
        logits = model(torch.tensor([whole])).logits[0, len(asked) - 1 : -1].float()
    best = logits.topk(2)
    correct = best.indices[:, 0].tolist() == whole[len(asked) :]
    return Verdict(conversation, correct, float((best.values[:, 0] - best.values[:, 1]).min()))
