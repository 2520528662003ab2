"""Which packages of a driver fit one another, by what `apt-cache madison` lists."""

from __future__ import annotations

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils import nvidia_packages

# Composed, in apt's words, for Ubuntu 22.04 with NVIDIA's repository. A name promises what it does
# not keep: 580 is 590 (packages.ubuntu.com: nvidia-fabricmanager-550 has been 570 on some suites).
LISTING = """\
nvidia-headless-580-open | 580.159.03-1ubuntu1 | https://m.example/cuda/ubuntu2204/x86_64  Packages
nvidia-headless-580-open | 580.126.20-1ubuntu1 | https://m.example/cuda/ubuntu2204/x86_64  Packages
nvidia-headless-580-open | 580.95.05-0ubuntu0.22.04.2 | http://m.example jammy/restricted amd64 Packages
nvidia-utils-580 | 580.159.03-1ubuntu1 | https://m.example/cuda/ubuntu2204/x86_64  Packages
nvidia-utils-580 | 580.126.20-1ubuntu1 | https://m.example/cuda/ubuntu2204/x86_64  Packages
nvidia-utils-580 | 580.95.05-0ubuntu0.22.04.2 | http://m.example jammy/restricted amd64 Packages
nvidia-fabricmanager-580 | 590.48.01-1 | https://m.example/cuda/ubuntu2204/x86_64  Packages
nvidia-fabricmanager | 590.48.01-1 | https://m.example/cuda/ubuntu2204/x86_64  Packages
nvidia-fabricmanager | 580.126.20-1 | https://m.example/cuda/ubuntu2204/x86_64  Packages
"""
DRIVER = ["nvidia-headless-580-open", "nvidia-utils-580"]
MANAGERS = ["nvidia-fabricmanager-580", "nvidia-fabricmanager"]


@pytest.fixture
def versions() -> nvidia_packages.Versions:
    return nvidia_packages.offered(LISTING)


def test_the_newest_of_the_branch(versions: nvidia_packages.Versions) -> None:
    assert nvidia_packages.choose(versions, [DRIVER], [], "580") == {
        "version": "580.159.03",
        "packages": ["nvidia-headless-580-open=580.159.03-1ubuntu1", "nvidia-utils-580=580.159.03-1ubuntu1"],
    }


def test_an_nvswitch_takes_the_newest_that_has_a_fabric_manager(versions: nvidia_packages.Versions) -> None:
    chosen = nvidia_packages.choose(versions, [["none"], DRIVER], MANAGERS, "580")
    assert chosen is not None
    assert chosen["version"] == "580.126.20"
    assert chosen["packages"][-1] == "nvidia-fabricmanager=580.126.20-1"


def test_a_fabric_manager_for_a_driver_that_is_there(versions: nvidia_packages.Versions) -> None:
    assert nvidia_packages.choose(versions, [], MANAGERS, "590.48.01") == {
        "version": "590.48.01",
        "packages": ["nvidia-fabricmanager-580=590.48.01-1"],
    }
    assert nvidia_packages.choose(versions, [], MANAGERS, "580.159.03") is None


@pytest.mark.parametrize(
    ("branch", "expected"),
    [("580.95", "580.95.05"), ("580.95.05", "580.95.05"), ("580.12", None), ("570", None)],
)
def test_a_branch_may_be_a_version(
    versions: nvidia_packages.Versions, branch: str, expected: str | None
) -> None:
    chosen = nvidia_packages.choose(versions, [DRIVER], [], branch)
    assert (chosen and chosen["version"]) == expected


def test_versions_are_compared_as_numbers() -> None:
    listing = "a | 580.95.05-1 | x Packages\na | 580.126.20-1 | x Packages\n"
    chosen = nvidia_packages.choose(nvidia_packages.offered(listing), [["a"]], [], "580")
    assert chosen is not None
    assert chosen["version"] == "580.126.20"


def test_a_person_is_told_what_there_is(versions: nvidia_packages.Versions) -> None:
    assert (
        nvidia_packages.explain(versions, ["nvidia-imex", *MANAGERS])
        == "nvidia-fabricmanager-580 590.48.01; nvidia-fabricmanager 590.48.01, 580.126.20"
    )
    assert nvidia_packages.explain(versions, ["nvidia-imex"]) == "none of them"
