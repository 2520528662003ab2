"""The words of pages, YAML and Python files that lint refuses, each with its line."""

from __future__ import annotations

import pytest
from language import page_texts, python_texts, words, yaml_texts

PYTHON = 'def run(x):\n    """It says so."""\n    raise Error(f"{x} wants " "more", hint="Look at {it}.")'
TASKS = "- name: Reads\n  msg: |\n    One line.\n    It knows.\n  loop: [{fix: It tells., when: it says}]"


def test_words_outside_of_code() -> None:
    assert list(words("The plan\nsays so, `it knows`.")) == [(1, "says")]
    assert not list(words("The demo stands for a model."))


def test_literals_of_python() -> None:
    assert sorted(python_texts(PYTHON)) == [(2, "It says so."), (3, "Look at {it}."), (3, "{} wants more")]


def test_shown_values_of_yaml() -> None:
    assert list(yaml_texts(TASKS)) == [(1, "Reads"), (3, "One line.\nIt knows.\n"), (5, "It tells.")]


@pytest.mark.parametrize("text", ["```\nit says\n```", "<!-- it says -->", "<!-- Written by x -->\nIt says."])
def test_code_comments_and_generated_pages_are_left_out(text: str) -> None:
    assert [word for _, prose in page_texts(text) for word in words(prose)] == []


def test_a_line_of_a_page_counts_code() -> None:
    ((start, prose),) = page_texts("# Title\n```\ncode\n```\nIt looks.")
    assert [start + line for line, _ in words(prose)] == [5]
