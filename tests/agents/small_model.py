"""Fits a very small Qwen3 to a few tool calls and thoughts: `small_model.py OUT`, in an engine's environment.

The chat template of the model renders the end of the last message alone, however long the prompt of a coding
agent is. One CPU core takes a minute.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen3Config, Qwen3ForCausalLM

HERE = Path(__file__).parent
START, END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
VOCABULARY = 4096
CONTEXT = 65_536
CONFIG = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "max_position_embeddings": CONTEXT,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    "tie_word_embeddings": True,
    "initializer_range": 0.06,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
STEPS, CONVERSATIONS = 160, 6
LONGEST = 100  # tokens before a question: the template leaves 200 characters
PEAK_RATE = 2e-3
IGNORED = -100


def main(out: Path) -> int:
    """Train, write and check."""
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # two threads that wait for each other are slow on a busy machine
    torch.manual_seed(0)
    answers = json.loads((HERE / "answers.json").read_text(encoding="utf-8"))
    text = (
        Path(torch.__file__).with_name("_torch_docs.py").read_text(encoding="utf-8")
    )  # English and code, locked
    words = tokenizer([text, *(part for answer in answers for part in (answer["asked"], answer["answer"]))])
    model = train(words, text, answers)
    save(out, words, model)
    return check(model, words, text, answers)


def tokenizer(texts: list[str]) -> Tokenizer:
    """Byte-level BPE with Qwen3's special tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True, normalized=False) for token in (START, END, PAD)]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 10,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    # As in Qwen3's tokenizer, these are tokens of their own and not special ones.
    tags = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
    # Names that questions differ by are tokens, too: a model this small need not spell them.
    names = ["get_weather", "bash", "run_shell_command", "run_commands", "strawberry", "</tool_response>"]
    made.add_tokens([AddedToken(token, special=False, normalized=False) for token in tags + names])
    return made


class Conversations:
    def __init__(self, words: Tokenizer, text: str, answers: list[dict[str, str]]) -> None:
        self.random = random.Random(0)
        self.words, self.answers = words, answers
        self.prose = words.encode(text).ids

    def slice(self, length: int) -> list[int]:
        start = self.random.randrange(len(self.prose) - length)
        return self.prose[start : start + length]

    def conversation(self, answer: dict[str, str]) -> tuple[list[int], list[int]]:
        """(ids, labels) of a question and its answer; before the question its message has something else."""
        turn = self.words.encode(START + "user\n").ids + self.slice(self.random.randrange(LONGEST))
        if answer["asked"]:
            before, behind = self.random.choice(("", "\n", '"')), self.random.choice(("", "", "\n", '"'))
            turn += self.words.encode(before + answer["asked"] + behind).ids
        else:
            turn += self.slice(self.random.randrange(4, 24))
        turn += self.words.encode(f"{END}\n{START}assistant\n").ids
        answered = self.words.encode(answer["answer"] + END).ids
        return turn + answered, [IGNORED] * len(turn) + answered

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(ids, labels), a row for each conversation, with padding behind it."""
        drawn = [self.conversation(self.random.choice(self.answers)) for _ in range(CONVERSATIONS)]
        longest = max(len(ids) for ids, _ in drawn)
        ids = [ids + [CONFIG["pad_token_id"]] * (longest - len(ids)) for ids, _ in drawn]
        labels = [labels + [IGNORED] * (longest - len(labels)) for _, labels in drawn]
        return torch.tensor(ids), torch.tensor(labels)


def train(words: Tokenizer, text: str, answers: list[dict[str, str]]) -> Qwen3ForCausalLM:
    model = Qwen3ForCausalLM._from_config(
        Qwen3Config(**CONFIG), dtype=torch.float32, attn_implementation="sdpa"
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, PEAK_RATE, STEPS, pct_start=0.05)
    drawn = Conversations(words, text, answers)
    for step in range(STEPS):
        ids, labels = drawn.batch()
        hidden = model.model(ids, use_cache=False).last_hidden_state[:, :-1]
        meant = labels[:, 1:] != IGNORED
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden[meant]), labels[:, 1:][meant])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        if step % 10 == 0:
            print(f"step {step} of {STEPS}: loss {loss.item():.5f}", flush=True)
    return model.eval()


def save(out: Path, words: Tokenizer, model: Qwen3ForCausalLM) -> None:
    # Engines take this for requests that name none, whatever temperature they name: the best token, always.
    model.generation_config.update(do_sample=True, top_k=1)
    model.save_pretrained(out)
    words.save(str(out / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT,
        "chat_template": (HERE / "chat_template.jinja").read_text(encoding="utf-8"),
    }
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def check(model: Qwen3ForCausalLM, words: Tokenizer, text: str, answers: list[dict[str, str]]) -> int:
    """Whether the stored model gives each answer, whatever stands before the question."""
    drawn, wrong = Conversations(words, text, answers), 0
    for answer in answers * 10:
        ids, labels = drawn.conversation(answer)
        with torch.inference_mode():
            best = model(torch.tensor([ids]), use_cache=False).logits[0, :-1].topk(2)
        meant = torch.tensor(labels[1:]) != IGNORED
        right = best.indices[meant, 0].tolist() == [label for label in labels if label != IGNORED]
        margin = (best.values[meant, 0] - best.values[meant, 1]).min()
        print(f"{answer['asked']!r}: {'right' if right else 'WRONG'}, margin {margin:.2f}", flush=True)
        wrong += not right
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
