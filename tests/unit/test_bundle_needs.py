"""What a bundle of another plan lacks, in sentences that name it."""

from __future__ import annotations

from typing import Any

import pytest
from bundles import DEBIAN, needs
from headfirst.control.bundle.needs import Packages, lacks
from headfirst.control.bundle.systems import System

UBUNTU = System(id="ubuntu", release="24.04")
HAVE = needs(
    kernels=("6.1.0-28-amd64",),
    packages=Packages(docker="distribution", driver="580 auto nvidia", toolkit="nvidia", rdma="inbox"),
)


def test_a_bundle_of_the_same_plan_lacks_nothing() -> None:
    assert not list(lacks(HAVE, HAVE))


def test_more_than_the_plan_needs_is_no_fault() -> None:
    assert not list(lacks(HAVE, needs()))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"headfirst": "0.2.0"}, "the bundle was made by Headfirst 0.1.0, and this is 0.2.0"),
        ({"engines": {"": "vllm 0.11"}}, "the service runs vllm 0.11, and the bundle has sglang 0.5.23"),
        ({"engines": {"chat": "vllm 1"}}, "service chat runs vllm 1, and the bundle has no engine of it"),
        ({"images": ("engine:2",)}, "the image engine:2 is not in the bundle"),
        ({"systems": (DEBIAN, UBUNTU)}, "hosts run ubuntu-24.04, and the bundle has packages of debian-12"),
        (
            {"systems": (System(id="debian", release="12", architecture="aarch64"),)},
            "hosts run debian-12 (aarch64), and the bundle has packages of debian-12",
        ),
        (
            {"kernels": ("6.8",)},
            "the headers of the kernel 6.8, which the driver is built with, are not in the bundle",
        ),
        (
            {"packages": Packages(docker="docker")},
            "the plan takes Docker from docker, and the bundle has distribution",
        ),
        (
            {"packages": Packages(docker="distribution", driver="570 auto nvidia")},
            "the plan takes the driver 570 auto nvidia, and the bundle has 580 auto nvidia",
        ),
    ],
)
def test_each_difference_is_named(change: dict[str, Any], why: str) -> None:
    assert list(lacks(HAVE, needs(**change))) == [why]
