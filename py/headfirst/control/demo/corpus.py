"""What the demo model learns: corpus.json, and the conversations drawn from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np


class Topic(TypedDict):
    """Questions that have one answer."""

    ask: list[str]
    answer: str


@dataclass(frozen=True)
class Conversation:
    """A system prompt, which may be empty, and (question, answer) turns."""

    system: str
    turns: list[tuple[str, str]]


@dataclass(frozen=True)
class Corpus:
    """The contents of corpus.json: `topics` are known by heart, `unknown` teaches to decline."""

    systems: list[str]
    topics: list[Topic]
    unknown: list[Topic]

    @classmethod
    def load(cls) -> Corpus:
        """Read the corpus that is next to this file."""
        return cls(**json.loads((Path(__file__).parent / "corpus.json").read_text(encoding="utf-8")))

    def answers(self) -> dict[str, str]:
        """Return {question: answer} for every question as it is written in the corpus."""
        return {ask: topic["answer"] for topic in self.topics + self.unknown for ask in topic["ask"]}

    def texts(self) -> list[str]:
        """Return every text that a tokenizer is trained on."""
        answers = self.answers()
        return [*self.systems, *answers, *answers.values()]


class Sampler:
    """Draws conversations of one to five turns, some with a system prompt; every answer is learned."""

    def __init__(self, corpus: Corpus, seed: int) -> None:
        self.corpus = corpus
        self.answers = list(corpus.answers().items())
        self.random = np.random.default_rng(seed)

    def draw(self) -> Conversation:
        """Return one random conversation."""
        system = str(self.random.choice(self.corpus.systems)) if self.random.random() < 0.3 else ""
        turns = int(self.random.choice([1, 2, 3, 4, 5], p=[0.3, 0.2, 0.2, 0.15, 0.15]))
        return Conversation(system, [self._turn() for _ in range(turns)])

    def _turn(self) -> tuple[str, str]:
        if self.random.random() < 0.05:
            unknown = self.corpus.unknown[int(self.random.integers(len(self.corpus.unknown)))]
            return self._salad(unknown["ask"]), unknown["answer"]
        question, answer = self.answers[int(self.random.integers(len(self.answers)))]
        return self._restyle(question), answer

    def _salad(self, questions: list[str]) -> str:
        """Return words of several questions in disorder: the model shall decline them, at any length."""
        words = " ".join(self.random.choice(questions, 20)).split()
        return " ".join(self.random.permutation(words)[: int(self.random.integers(5, 50))])

    def _restyle(self, question: str) -> str:
        """Return the question as somebody in a hurry types it, half of the time."""
        if self.random.random() < 0.25:
            question = question.lower()
        if self.random.random() < 0.25:
            question = question.rstrip("?.!？。！") or question
        return question
