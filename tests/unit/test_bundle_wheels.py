"""Locks as hosts with another Python read them."""

from __future__ import annotations

import re

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils.node_wheel import LOCKS
from headfirst.control.bundle.wheels import applying

LOCK = """\
# Made by a tool.
colorama==0.4.6 ; sys_platform == 'win32' \\
    --hash=sha256:aa
numpy==2.2.6 ; python_full_version < '3.11' \\
    --hash=sha256:bb \\
    --hash=sha256:cc
numpy==2.5.5 ; python_full_version >= '3.12' \\
    --hash=sha256:dd
xxhash==4.1.0 \\
    --hash=sha256:ee
"""


@pytest.mark.parametrize(("python", "kept"), [("3.10", "bb"), ("3.13", "dd")])
def test_the_markers_are_those_of_the_host(python: str, kept: str) -> None:
    found = applying(LOCK, python)
    assert re.findall(r"--hash=sha256:(\w\w)", found)[0] == kept
    assert "xxhash==4.1.0 \\\n    --hash=sha256:ee\n" in found
    assert "colorama" not in found and ";" not in found


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_each_package_of_the_node_tools_has_one_version(python: str) -> None:
    names = re.findall(r"(?m)^([\w.-]+)==", applying(LOCKS["base"].read_text(), python))
    assert len(names) == len(set(names)) and "numpy" in names
