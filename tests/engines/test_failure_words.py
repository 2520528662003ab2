"""The words of each failure rule are in a package of a version that the rule names.

A pattern's words are its runs of letters, those of each alternative among them. They are searched in the
modules and libraries of NCCL, CUDA's runtime, PyTorch, the engines and what these import. Messages of the C
library are os.strerror's. Where a rule or its lines name a public report, a line of it may have the words.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution
from typing import Any

import engine_sites
import pytest
from failure_lines import PROFILES, matched, reported
from headfirst.decide import engines
from packaging.version import Version

# Names of producers in the rules, where the package has another one.
PACKAGES = {"nccl": "nvidia-nccl", "cuda": "nvidia-cuda-runtime"}
LIBRARIES = {"torch", "transformers", "huggingface-hub", "safetensors", "tokenizers", "ray"}
SYSTEM = "\n".join(os.strerror(number) for number in errno.errorcode)


@cache
def texts() -> list[tuple[str, Version, bytes]]:
    """Producer, version and text of every package that is read."""
    found = []
    for name in ("libraries-older", "libraries-newer"):
        for path in engine_sites.texts(name).glob("*.txt"):
            package, _, version = path.stem.partition("-")
            producer = package.replace("_", "-").removesuffix("-cpu")  # vLLM's build for CPUs
            found.append((producer, Version(version), path.read_bytes()))
    folders = {engine_sites.engine_site(name) for name in engine_sites.ENGINES}
    folders |= {engine_sites.packages_site(name) for name in ("sglang", "vllm")}
    folders |= {*engine_sites.ray().parent.glob("lib/python*/site-packages")}
    for folder in sorted(folders):
        for about in folder.glob("*.dist-info"):
            its = Distribution.at(about)
            package = its.metadata["Name"].lower().replace("_", "-")
            if package in LIBRARIES or package in engines.names():
                text = engine_sites.package_text(folder, about)
                found.append((package, Version(its.version), text))
    return found


def in_range(version: Version, named: str) -> bool:
    """Whether a version is within 2.10–2.27, 2.10– or –2.27, whose end includes all that begin with it."""
    first, _, last = named.partition("–")
    low = not first or version >= Version(first)
    return low and (not last or version.release[: len(Version(last).release)] <= Version(last).release)


def words(pattern: str) -> set[str]:
    """Runs of at least five letters, digits and spaces that a line must have; not those that it must not."""
    return {run.strip() for run in _runs(re._parser.parse(pattern)) if len(re.findall(r"\w", run)) >= 5}


def _runs(tree: Any) -> Iterator[str]:
    run = ""
    for operation, value in tree:
        if operation is re._constants.LITERAL:
            run += chr(value)
            continue
        yield run
        run = ""
        parts: list[Any] = []
        if operation is re._constants.BRANCH:
            parts = value[1]
        elif operation is re._constants.SUBPATTERN:
            parts = [value[3]]
        elif operation in (re._constants.MAX_REPEAT, re._constants.MIN_REPEAT):
            parts = [value[2]]
        elif operation is re._constants.ASSERT:
            parts = [value[1]]
        for part in parts:
            yield from _runs(part)
    yield run


def missing(name: str, rule: Any) -> list[str]:
    """The words of a rule that nothing has."""
    packages = {PACKAGES.get(producer, producer): str(named) for producer, named in rule.producers.items()}
    read = [
        text
        for package, version, text in texts()
        for producer, named in packages.items()
        if package.removesuffix("-cu12") == producer and in_range(version, named)
    ]
    report = "\n".join(matched(name, rule.id)) if rule.source or reported(name, rule.id) else ""
    return [
        word
        for word in sorted(words(rule.pattern.pattern))
        if not any(word.encode() in text for text in read) and word not in SYSTEM and word not in report
    ]


@pytest.mark.parametrize("name", PROFILES)
def test_the_words_of_a_rule_are_in_a_package_that_it_names(name: str) -> None:
    generic = PROFILES["generic"].rules if name != "generic" else ()
    rules = [rule for rule in PROFILES[name].rules if rule not in generic]
    assert {rule.id: lost for rule in rules if (lost := missing(name, rule))} == {}


@pytest.mark.parametrize(
    ("version", "named", "within"),
    [("2.28.9", "2.10–", True), ("2.28.9", "2.10–2.27", False), ("2.27.7", "2.10–2.27", True),
     ("0.4.9.post6", "0.4–", True), ("0.33.0", "0.6–0.32", False), ("12.9.79", "12–", True)],
)  # fmt: skip
def test_ranges_of_versions(version: str, named: str, within: bool) -> None:
    assert in_range(Version(version), named) is within


def test_the_words_of_a_pattern() -> None:
    pattern = r"^(?!.*retrying).*failed with (error )?(\d+ )?(No route to host|Invalid [Aa]rgument)(, on \w)?"
    assert words(pattern) == {"failed with", "error", "No route to host", "Invalid", "rgument"}
