"""When models were published, and what is newer than what."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
from headfirst.decide.model import releases
from headfirst.decide.model.catalogue_entries import RELEASED
from together import together

ROWS = json.loads(files("headfirst.decide.model").joinpath("releases.json").read_text())["rows"]


@together("row", ROWS)
def test_a_row_has_a_date_and_its_source(row: dict[str, str]) -> None:
    assert row.keys() == {"ids", "released", "source"}
    assert RELEASED.fullmatch(row["released"])
    assert row["source"]


@pytest.mark.parametrize(
    ("id", "released"),
    [
        ("Qwen/Qwen3-32B-AWQ", "2025-04"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "2025-07"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "2025-09"),
        ("RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8", "2024-07"),
        ("mistralai/Mistral-Large-Instruct-2411", "2024-11"),
        ("/data/DeepSeek-V3.1", "2025-08"),
        ("deepseek-ai/DeepSeek-V3-0324", "2025-03"),
        ("team/other", None),
    ],
)
def test_the_month_of_a_model(id: str, released: str | None) -> None:
    assert releases.find(id) == released


def test_a_year_is_older_than_its_months_and_the_unknown_is_oldest() -> None:
    assert releases.year("2025") <= releases.year("2025-01") < releases.year("2025-02")
    assert releases.year(None) <= min(releases.year(row["released"]) for row in ROWS)
