"""What role node_tools hands to pip: requirements that exist, and no password in an argument."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import variables_of_role
from ansible_collections.headfirst.serving.plugins.plugin_utils.node_wheel import build_node_wheel

ROLE = Path(__file__).resolve().parents[2] / "roles" / "node_tools"


def value(name: str, **variables: Any) -> Any:
    return variables_of_role.value(ROLE, name, **variables)


def test_the_requirements_are_beside_the_wheel(tmp_path: Path) -> None:
    wheel = build_node_wheel(tmp_path)
    extras = ["huggingface", "modelscope"]
    paths = value("__node_tools_requirements", node_tools_wheel=str(wheel), node_tools_extras=extras)
    assert [Path(path).name.split(".")[-2] for path in paths] == ["base", *extras]
    assert all(Path(path).is_file() for path in paths)
    options = value("__node_tools_pip_options", node_tools_wheel=str(wheel), node_tools_extras=extras)
    assert options == [word for path in paths for word in ("--requirement", Path(path).name)]


def test_an_index_with_a_password_is_in_no_argument(tmp_path: Path) -> None:
    wheel = str(build_node_wheel(tmp_path))
    url = "https://user:index-token@host/simple"
    options = value("__node_tools_pip_options", node_tools_wheel=wheel, node_tools_index_url=url)
    assert options[:2] == ["--requirement", "/opt/headfirst/wheels/index.txt"]
    assert "index-token" not in " ".join(options)


def test_a_folder_of_wheels_needs_no_index(tmp_path: Path) -> None:
    wheel = str(build_node_wheel(tmp_path))
    options = value("__node_tools_pip_options", node_tools_wheel=wheel, node_tools_wheelhouse="/wheels")
    assert options[:3] == ["--no-index", "--find-links", "/opt/headfirst/wheels"]
