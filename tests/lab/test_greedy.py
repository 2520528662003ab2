"""The service's greedy answer is transformers', token for token, on the converted weights of the nodes."""

from __future__ import annotations

import httpx
import pytest
from greedy_reference import NEW_TOKENS, references
from readme_lab import INVENTORY, Service

pytestmark = pytest.mark.lab
IMAGE = "headfirst/sglang-cpu:0.5.23"


def test_greedy_answers_equal_those_of_transformers(service: Service) -> None:
    for reference in references(IMAGE, INVENTORY):
        response = httpx.post(
            f"{service.api}/generate",
            headers={"Authorization": f"Bearer {service.api_key}"},
            json={
                "input_ids": reference.prompt,
                "sampling_params": {"temperature": 0, "max_new_tokens": NEW_TOKENS},
            },
            timeout=120,
        )
        assert response.json()["output_ids"] == reference.answer
