"""Embeddings, rerank, reward scores and classes."""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Sequence
from typing import Any

from headfirst.common.untrusted import shown
from headfirst.control.smoke.answers import Embeddings, FailedCase, Labels, NotSupportedCase, read
from headfirst.control.smoke.api import Api
from headfirst.control.smoke.verdict import case
from headfirst.decide.engines.base import ScoreRequest

_TEXTS = ["The capital of France is Paris.", "Rome is in Italy.", "A cat purrs."]
_QUERY = "What is the capital of France?"
_DOCUMENTS = ["A cat purrs.", "The capital of France is Paris.", "Bread needs flour."]
_ALIKE = 0.98  # cosine of two vectors of one text: batches differ in rounding


@case("embeddings.single", frozenset({"embedding"}))
def single(api: Api) -> str:
    """A text has a vector of finite numbers, not all zero."""
    [vector] = _vectors(api, _TEXTS[0])
    return f"{len(vector)} dimensions"


@case("embeddings.batch", frozenset({"embedding"}))
def batch(api: Api) -> str:
    """Several texts have their vectors in their order, and each is that of the text alone."""
    vectors = _vectors(api, _TEXTS)
    [alone] = _vectors(api, _TEXTS[1])
    if _cosine(vectors[1], alone) < _ALIKE:
        raise FailedCase("the vector of a text in a batch is not the one of the text alone")
    if _cosine(vectors[0], vectors[2]) > 1 - 1e-6:
        raise FailedCase("different texts have one vector")
    return f"{len(vectors)} vectors"


@case("embeddings.base64", frozenset({"embedding"}))
def in_base64(api: Api) -> str:
    """encoding_format=base64 has the same numbers as float."""
    [numbers] = _vectors(api, _TEXTS[0])
    [packed] = _vectors(api, _TEXTS[0], encoding_format="base64")
    if _cosine(numbers, packed) < _ALIKE:
        raise FailedCase("base64 and float are different vectors")
    return f"{len(packed)} dimensions"


@case("embeddings.dimensions", frozenset({"embedding"}), refusal="matryoshka|dimensions")
def dimensions(api: Api) -> str:
    """`dimensions` shortens the vector."""
    [whole] = _vectors(api, _TEXTS[0])
    size = len(whole) // 2
    [cut] = _vectors(api, _TEXTS[0], dimensions=size)
    if len(cut) != size:
        raise FailedCase(f"{len(cut)} dimensions, not {size}")
    return f"{size} of {len(whole)} dimensions"


def _vectors(api: Api, texts: str | list[str], **parameters: Any) -> list[Sequence[float]]:
    form = parameters.setdefault("encoding_format", "float")
    with api.errors():
        answer = api.client.embeddings.create(model=api.target.model, input=texts, **parameters)
        rows = read(Embeddings, answer).data
    count = 1 if isinstance(texts, str) else len(texts)
    if [row.index for row in rows] != list(range(count)):
        raise FailedCase(f"{len(rows)} vectors with the indices {[row.index for row in rows][:5]}")
    vectors = []
    for row in rows:
        if isinstance(row.embedding, str) != (form == "base64"):
            raise FailedCase(f"the vector is not encoded as {form}")
        vector = _unpacked(row.embedding) if isinstance(row.embedding, str) else row.embedding
        if not any(vector) or not all(math.isfinite(number) for number in vector):
            raise FailedCase("the vector is empty, all zero or not finite")
        vectors.append(vector)
    if len({len(vector) for vector in vectors}) > 1:
        raise FailedCase("the vectors have different lengths")
    return vectors


def _unpacked(text: str) -> Sequence[float]:
    try:
        data = base64.b64decode(text, validate=True)
        return struct.unpack(f"<{len(data) // 4}f", data)
    except (binascii.Error, struct.error):
        raise FailedCase("the vector is not base64 of 32-bit floats") from None


def _cosine(first: Sequence[float], second: Sequence[float]) -> float:
    if len(first) != len(second):
        return -1
    product = math.fsum(a * b for a, b in zip(first, second, strict=True))
    return product / math.hypot(*first) / math.hypot(*second)


@case("rerank.order", frozenset({"rerank"}))
def order(api: Api) -> str:
    """The document that answers the query has the highest score."""
    request = _offered(api, api.target.dialect.rerank)
    rows = _rows(request, api.post(request.path, query=_QUERY, **{request.texts: _DOCUMENTS}))
    scores: dict[int, float] = {}
    for row in rows:
        index = row.get("index") if isinstance(row, dict) else None
        if not isinstance(index, int) or index in scores:
            raise FailedCase("a result lacks the index of its document, or two have one")
        scores[index] = _score(request, row)
    if sorted(scores) != list(range(len(_DOCUMENTS))):
        raise FailedCase(f"{len(scores)} results for {len(_DOCUMENTS)} documents")
    best = max(scores, key=lambda index: scores[index])
    if best != 1:
        raise FailedCase(f"the best document is {_DOCUMENTS[best]!r}")
    return f"scores {', '.join(f'{scores[index]:.3g}' for index in sorted(scores))}"


@case("reward.score", frozenset({"reward"}))
def score(api: Api) -> str:
    """Every text has a score of its own."""
    request = _offered(api, api.target.dialect.reward)
    rows = _rows(request, api.post(request.path, **{request.texts: _TEXTS}))
    if len(rows) != len(_TEXTS):
        raise FailedCase(f"{len(rows)} scores for {len(_TEXTS)} texts")
    scores = [_score(request, row) for row in rows]
    if len(set(scores)) == 1:
        raise FailedCase(f"different texts have one score, {scores[0]:.3g}")
    return f"scores {', '.join(f'{value:.3g}' for value in scores)}"


@case("classify.labels", frozenset({"reward"}), refusal="not support")
def labels(api: Api) -> str:
    """A text has a label and the probabilities of all labels."""
    path = api.target.dialect.classify
    if path is None:
        raise NotSupportedCase(f"{api.target.engine} has no such request")
    rows = read(Labels, api.post(path, input=_TEXTS)).data
    if len(rows) != len(_TEXTS):
        raise FailedCase(f"{len(rows)} labels for {len(_TEXTS)} texts")
    for row in rows:
        if not all(0 <= share <= 1 for share in row.probs) or abs(math.fsum(row.probs) - 1) > 0.01:
            raise FailedCase("the probabilities of a text are not parts of 1")
    return shown(", ".join(f"{row.label} {max(row.probs):.2f}" for row in rows), 80)


def _offered(api: Api, request: ScoreRequest | None) -> ScoreRequest:
    if request is None:
        raise NotSupportedCase(f"{api.target.engine} has no such request")
    return request


def _rows(request: ScoreRequest, answer: Any) -> list[Any]:
    for key in request.rows:
        answer = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(answer, list):
        raise FailedCase("the answer has no list of results")
    return answer


def _score(request: ScoreRequest, row: Any) -> float:
    """The number of a result; of a list of numbers the last, which is that of the text's end."""
    for key in request.score:
        row = row.get(key) if isinstance(row, dict) else None
    while isinstance(row, list) and row:
        row = row[-1]
    if isinstance(row, bool) or not isinstance(row, int | float) or not math.isfinite(row):
        raise FailedCase("a result has no finite score")
    return float(row)
