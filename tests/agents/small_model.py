"""Fits a very small Qwen3 to a few tool calls and thoughts: `small_model.py OUT`, in an engine's environment.

The model answers by the end of the last message, whatever came before: the prompts of coding agents are long.
Two CPU cores take some minutes.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from itertools import accumulate
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
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
# Tokens of a sequence, sequences of a step, steps: first to learn the answers, then to pass over much else.
STAGES = ((320, 3, 280), (3072, 1, 100))
PEAK_RATE = 3e-3
IGNORED = -100
NEARNESS = 1.7  # of queries and keys, in the first stage
SHARPENED = 1.6  # times that in the second


def main(out: Path) -> int:
    """Train, write and check."""
    out.mkdir(parents=True, exist_ok=True)
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
        start = self.random.randrange(max(1, len(self.prose) - length))
        return self.prose[start : start + length]

    def conversation(self, answer: dict[str, str]) -> tuple[list[int], list[int]]:
        """(ids, labels) of a question and its answer; before the question its message has something else."""
        turn = self.words.encode(START + "user\n").ids + self.slice(self.random.randrange(24))
        if answer["asked"]:
            before, behind = self.random.choice(("", "\n", '"')), self.random.choice(("", "", "\n", '"'))
            turn += self.words.encode(before + answer["asked"] + behind).ids
        else:
            turn += self.slice(self.random.randrange(4, 24))
        turn += self.words.encode(f"{END}\n{START}assistant\n").ids
        answered = self.words.encode(answer["answer"] + END).ids
        return turn + answered, [IGNORED] * len(turn) + answered

    def sequence(self, length: int) -> tuple[list[int], list[int], list[int]]:
        """(ids, labels, positions) of conversations with prose between them; gaps stand for more of it."""
        ids: list[int] = []
        labels: list[int] = []
        gaps: list[int] = []
        while len(ids) < length:
            prose = self.slice(int(length / 3 * self.random.random() ** 3))
            gap = int(CONTEXT / 8 * self.random.random() ** 4) if prose and sum(gaps) < CONTEXT / 2 else 0
            talk, answered = self.conversation(self.random.choice(self.answers))
            ids += prose + talk
            labels += [IGNORED] * len(prose) + answered
            gaps += [gap] + [0] * (len(prose) + len(talk) - 1)
        positions = [index + gap for index, gap in enumerate(accumulate(gaps))]
        return ids[:length], labels[:length], positions[:length]

    def batches(self) -> Iterator[tuple[torch.Tensor, ...]]:
        for length, rows, steps in STAGES:
            for _ in range(steps):
                drawn = (self.sequence(length) for _ in range(rows))
                yield tuple(torch.tensor(part) for part in zip(*drawn, strict=True))


def train(words: Tokenizer, text: str, answers: list[dict[str, str]]) -> Qwen3ForCausalLM:
    model = Qwen3ForCausalLM._from_config(
        Qwen3Config(**CONFIG), dtype=torch.float32, attn_implementation="sdpa"
    )
    initialise(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    total = sum(steps for *_, steps in STAGES)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, PEAK_RATE, total, pct_start=0.05)
    drawn = Conversations(words, text, answers).batches()
    for step, (ids, labels, positions) in enumerate(drawn):
        if step == STAGES[0][-1]:
            sharpen(model)
        # With a mask, transformers takes gaps of the positions for nothing but gaps.
        hidden = model.model(ids, torch.ones_like(ids), positions, use_cache=False).last_hidden_state[:, :-1]
        meant = labels[:, 1:] != IGNORED
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden[meant]), labels[:, 1:][meant])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        if step % 10 == 0:
            print(f"step {step} of {total}: loss {loss.item():.5f}", flush=True)
    return model.eval()


def initialise(model: Qwen3ForCausalLM) -> None:
    """Each matrix by its fan-in; and attention that prefers what is near, which short texts do not teach.

    The first dimension of every embedding is 1, and queries and keys take it up in the first dimension of
    every pair that is rotated: the sum of the cosines of all frequencies falls with the distance.
    """
    for name, tensor in model.state_dict().items():
        if name == "model.embed_tokens.weight":
            tensor.normal_(std=0.1)
            tensor[:, 0] = 1
        elif name.endswith(("q_norm.weight", "k_norm.weight")):
            tensor.fill_(NEARNESS)
        elif tensor.ndim == 2:
            adds = name.endswith(("o_proj.weight", "down_proj.weight"))
            tensor.normal_(std=(0.3 if adds else 1.0) * tensor.shape[1] ** -0.5)
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                tensor.view(-1, 2, CONFIG["head_dim"] // 2, tensor.shape[1])[:, 0, :, 0] += 0.3
            elif adds:
                tensor[0] = 0


def sharpen(model: Qwen3ForCausalLM) -> None:
    """Let far tokens weigh less in every attention."""
    for name, tensor in model.state_dict().items():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            tensor *= SHARPENED


def save(out: Path, words: Tokenizer, model: Qwen3ForCausalLM) -> None:
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
    """Whether the stored model gives each answer after nothing, and after as much as an agent sends."""
    drawn, wrong = Conversations(words, text, answers), 0
    for before in (0, 2_000, 24_000):
        talks = [drawn.conversation(answer) for answer in answers]
        ids = drawn.slice(before) + [token for talk, _ in talks for token in talk]
        with torch.inference_mode():
            hidden = model.model(torch.tensor([ids]), use_cache=False).last_hidden_state[0]
        start = before
        for answer, (talk, labels) in zip(answers, talks, strict=True):
            meant = [start + index - 1 for index, label in enumerate(labels) if label != IGNORED]
            best = model.lm_head(hidden[meant]).topk(2)
            right = best.indices[:, 0].tolist() == [label for label in labels if label != IGNORED]
            margin = (best.values[:, 0] - best.values[:, 1]).min()
            print(
                f"{before} {answer['asked']!r}: {'right' if right else 'WRONG'}, margin {margin:.2f}",
                flush=True,
            )
            wrong += not right
            start += len(talk)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
