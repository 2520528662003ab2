"""Flags of a rank's command line."""

from __future__ import annotations

import pytest
from headfirst.decide.diagnose.subject import masked, values
from headfirst.decide.scrub import MASK


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("vllm serve /m --tp 2", {"command": "vllm serve /m", "--tp": "2"}),
        ("x --a=1 --b", {"command": "x", "--a": "1", "--b": ""}),
        ("x --hosts one two --n -1", {"command": "x", "--hosts": "one two", "--n": "-1"}),
        ("x --a 1 --a 2", {"command": "x", "--a": "2"}),  # as argparse takes it
        ("x -tp 2 --a 1", {"command": "x", "-tp": "2", "--a": "1"}),
        ("", {}),
    ],
)
def test_flags_and_their_values(argv: str, expected: dict[str, str]) -> None:
    assert values(argv.split()) == expected


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        ("x --key one two --b c", f"x --key {MASK} {MASK} --b c"),
        ("x --key=one --b c", f"x --key={MASK} --b c"),
        ("x --keys one", "x --keys one"),
        ("x --b c --key", "x --b c --key"),
    ],
)
def test_values_of_secret_flags_are_masked(argv: str, shown: str) -> None:
    assert masked(argv.split(), {"--key"}) == tuple(shown.split())
