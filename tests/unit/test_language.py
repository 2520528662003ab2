"""The wrong terms of pages, YAML and Python files that lint refuses, each with its line."""

from __future__ import annotations

import pytest
from language import page_texts, python_texts, wrong_terms, yaml_texts

PYTHON = 'def run(x):\n    """It says so."""\n    raise Error(f"{x} wants " "more", hint="Look at {it}.")'
TASKS = "- name: Reads\n  msg: |\n    One line.\n    It knows.\n  loop: [{fix: It tells., when: it says}]"


def test_wrong_terms_outside_of_code() -> None:
    text = "The host's\nDocker engine reckons, `docker engine`."
    assert list(wrong_terms(text)) == [
        (1, "Docker engine (Docker Engine, container runtime)"),
        (1, "reckons (compute)"),
    ]
    assert not list(wrong_terms("The engine in a container of the Docker Engine."))


def test_literals_of_python_and_shown_values_of_yaml() -> None:
    assert sorted(python_texts(PYTHON)) == [(2, "It says so."), (3, "Look at {it}."), (3, "{} wants more")]
    assert list(yaml_texts(TASKS)) == [(1, "Reads"), (3, "One line.\nIt knows.\n"), (5, "It tells.")]


@pytest.mark.parametrize("text", ["```\nanew\n```", "<!-- anew -->", "<!-- Written by x -->\nAnew."])
def test_code_comments_and_generated_pages_are_left_out(text: str) -> None:
    assert [term for _, prose in page_texts(text) for term in wrong_terms(prose)] == []


def test_a_line_of_a_page_counts_code() -> None:
    ((start, prose),) = page_texts("# Title\n```\ncode\n```\nAnew.")
    assert [start + line for line, _ in wrong_terms(prose)] == [5]
