"""Training of the demo model, with the rounding it will meet: FP8 and BF16 weights, inexact sums."""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

from headfirst.control.demo import shards
from headfirst.control.demo.architecture import TRAINED
from headfirst.control.demo.corpus import Conversation, Corpus, Sampler
from headfirst.control.demo.tokenizer import ASSISTANT, BOS, EOS, PAD, USER

STEPS, WARMUP, PEAK_RATE = 750, 10, 3e-3
TOKENS_PER_STEP = 1536
ROUNDED_FROM = 0.6  # fraction of the steps after which the weights are rounded and the experts' bias stays
NOISE = 2.0**-7  # relative: four times the rounding error of BF16
BIAS_STEP = 1e-3  # of the auxiliary-loss-free balancing, as in DeepSeek-V3's report
IGNORED = -100  # a label that does not count

Batch = tuple[torch.Tensor, torch.Tensor]  # token ids and labels, both int64 [conversations, tokens]


def train(corpus: Corpus, tokenizer: Tokenizer, seed: int) -> DeepseekV3ForCausalLM:
    """Return the trained model in float32; prints the loss every 50 steps."""
    torch.manual_seed(seed)
    config = DeepseekV3Config(**TRAINED)
    model = DeepseekV3ForCausalLM._from_config(config, dtype=torch.float32, experts_implementation="eager")
    _initialise(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, PEAK_RATE, STEPS, pct_start=WARMUP / STEPS)
    balancing = [gate.register_forward_hook(_balance) for gate in _modules(model, "mlp.gate")]
    for step, (ids, labels) in zip(range(STEPS), batches(corpus, tokenizer, seed), strict=False):
        if step == int(STEPS * ROUNDED_FROM):
            for hook in balancing:
                hook.remove()
            for linear in _modules(model, "_proj"):
                linear.register_forward_hook(_blur)
        if step < int(STEPS * ROUNDED_FROM):
            loss = _learn(model, ids, labels)
        else:
            with rounded(model):
                loss = _learn(model, ids, labels)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step:4d}  loss {loss:.6f}", flush=True)
    return model.eval()


def hub_tensors(model: DeepseekV3ForCausalLM) -> dict[str, torch.Tensor]:
    """Return the model's tensors under their names on the hub, as views: transformers fuses the experts."""
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in model.state_dict().items():
        if name.endswith(".experts.gate_up_proj"):
            for expert, fused in enumerate(tensor):
                gate, up = fused.chunk(2)
                stem = name.replace("gate_up_proj", str(expert))
                tensors[f"{stem}.gate_proj.weight"], tensors[f"{stem}.up_proj.weight"] = gate, up
        elif name.endswith(".experts.down_proj"):
            for expert, down in enumerate(tensor):
                tensors[f"{name.replace('down_proj', str(expert))}.down_proj.weight"] = down
        else:
            tensors[name] = tensor
    return tensors


@contextmanager
def rounded(model: DeepseekV3ForCausalLM) -> Iterator[None]:
    """Give the model, for a while, the weights it will have after FP8 and BF16."""
    tensors = hub_tensors(model)
    exact = {name: tensor.clone() for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        if shards.is_stored_as_fp8(name):
            tensor.copy_(shards.dequantise(*shards.quantise(tensor)))
        elif not name.endswith("e_score_correction_bias"):
            tensor.copy_(tensor.to(torch.bfloat16))
    try:
        yield
    finally:
        for name, tensor in tensors.items():
            tensor.copy_(exact[name])


def batches(corpus: Corpus, tokenizer: Tokenizer, seed: int) -> Iterator[Batch]:
    """Yield batches of conversations of similar length, about TOKENS_PER_STEP tokens each, without end."""
    sampler = Sampler(corpus, seed)
    while True:
        drawn = sorted((encode(sampler.draw(), tokenizer) for _ in range(512)), key=lambda pair: len(pair[0]))
        chunks: list[list[tuple[list[int], list[int]]]] = [[]]
        for pair in drawn:
            if len(pair[0]) * (len(chunks[-1]) + 1) > TOKENS_PER_STEP:
                chunks.append([])
            chunks[-1].append(pair)
        for index in sampler.random.permutation(len(chunks)):
            yield _pad(chunks[index], tokenizer.token_to_id(PAD))


def encode(conversation: Conversation, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return (ids, labels) as the chat template lays the conversation out; only answers are labels."""
    ids = tokenizer.encode(BOS + conversation.system).ids
    labels = [IGNORED] * len(ids)
    for question, answer in conversation.turns:
        prompt = tokenizer.encode(USER + question + ASSISTANT).ids
        answered = tokenizer.encode(answer + EOS).ids
        ids += prompt + answered
        labels += [IGNORED] * len(prompt) + answered
    return ids, labels


def _pad(pairs: list[tuple[list[int], list[int]]], pad: int) -> Batch:
    width = max(len(ids) for ids, _ in pairs)
    ids = [ids + [pad] * (width - len(ids)) for ids, _ in pairs]
    labels = [labels + [IGNORED] * (width - len(labels)) for _, labels in pairs]
    return torch.tensor(ids), torch.tensor(labels)


def _initialise(model: DeepseekV3ForCausalLM) -> None:
    """Scale each matrix by its fan-in: at this width transformers' 0.02 learns five times more slowly."""
    for name, tensor in hub_tensors(model).items():
        if name == "model.embed_tokens.weight":
            tensor.normal_(std=0.5)
        elif tensor.ndim == 2:
            adds_to_residual = name.endswith(("o_proj.weight", "down_proj.weight", "lm_head.weight"))
            tensor.normal_(std=(0.3 if adds_to_residual else 1.0) * tensor.shape[1] ** -0.5)


def _learn(model: DeepseekV3ForCausalLM, ids: torch.Tensor, labels: torch.Tensor) -> float:
    loss = model(input_ids=ids, labels=labels, use_cache=False).loss
    loss.backward()
    return float(loss.item())


def _modules(model: DeepseekV3ForCausalLM, ending: str) -> list[torch.nn.Module]:
    return [module for name, module in model.named_modules() if name.endswith(ending)]


def _balance(gate: Any, _inputs: Any, outputs: Any) -> None:
    """Make rarely chosen experts a little more likely."""
    load = torch.bincount(outputs[2].flatten(), minlength=gate.num_experts).float()
    gate.e_score_correction_bias += BIAS_STEP * torch.sign(load.mean() - load)


def _blur(_linear: Any, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
    """Disturb a result as other reduction orders would, only more."""
    return output * (1 + NOISE * torch.randn_like(output))
