"""pip's settings are read by pip's own rules, and become uv's variables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.control import pip_config
from headfirst.control.machine import pip_settings


def test_a_later_file_and_a_variable_win_and_names_are_normalized(tmp_path: Path) -> None:
    system, user = tmp_path / "system.conf", tmp_path / "user.conf"
    system.write_text("[global]\nindex_url = https://system.example/simple\ntimeout = 10\n")
    user.write_text("[global]\ntimeout = 20\n[install]\n--index-url = https://user.example/simple\n")
    settings = pip_config.read({"PIP_NO_INDEX": "1", "PIP_PROXY": "", "HOME": "/root"}, [system, user])
    assert settings == {
        ("global", "index-url"): "https://system.example/simple",
        ("global", "timeout"): "20",
        ("install", "index-url"): "https://user.example/simple",
        (":env:", "no-index"): "1",
    }
    assert pip_config.of_command(settings, "install")["index-url"] == "https://user.example/simple"
    assert pip_config.of_command(settings, "download")["index-url"] == "https://system.example/simple"


@pytest.mark.parametrize("variables", [{}, {"XDG_CONFIG_HOME": "/x", "XDG_CONFIG_DIRS": "/a:/b"}])
def test_the_files_are_those_that_pip_reads_in_its_order(variables: dict[str, str]) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "XDG_"))}
    argv = [sys.executable, "-m", "pip", "config", "debug"]
    printed = subprocess.run(argv, env=clean | variables, capture_output=True, text=True, check=True).stdout
    listed = [line.strip().partition(", exists:")[0] for line in printed.splitlines() if ", exists:" in line]
    files = [str(path) for path in pip_config.config_files(variables)]
    # pip prints the file of the environment before those of the user, and reads it after them.
    assert sorted(files) == sorted(listed)
    assert files[-1] == str(Path(sys.prefix, "pip.conf"))


def test_a_named_file_that_exists_replaces_those_of_the_user(tmp_path: Path) -> None:
    named = tmp_path / "named.conf"
    variables = {"PIP_CONFIG_FILE": str(named), "XDG_CONFIG_HOME": "/x"}
    assert Path("/x/pip/pip.conf") in pip_config.config_files(variables)
    named.touch()
    assert Path("/x/pip/pip.conf") not in pip_config.config_files(variables)
    assert pip_config.config_files(variables)[-1] == named


def test_no_files_where_the_variable_names_the_null_device() -> None:
    assert pip_config.config_files({"PIP_CONFIG_FILE": os.devnull}) == []


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "pip.conf"
    broken.write_text("index-url = https://x.example/simple\n")
    with pytest.raises(NotReadyError, match="cannot be read") as caught:
        pip_config.read({}, [broken])
    assert caught.value.where == str(broken)


def test_settings_become_variables_of_uv_without_folders_that_are_not_there(tmp_path: Path) -> None:
    config = {
        "index-url": "https://near.example/simple",
        "extra-index-url": f"https://a.example/simple\nfile://{tmp_path}",
        "find-links": f"{tmp_path} /not/there",
        "client-cert": "/etc/key.pem",
        "timeout": "15.5",
        "retries": "7",
        "constraint": "/etc/constraints.txt",
    }
    assert pip_settings.translated(config) == {
        "UV_DEFAULT_INDEX": "https://near.example/simple",
        "UV_INDEX": f"https://a.example/simple file://{tmp_path}",
        "UV_FIND_LINKS": str(tmp_path),
        "SSL_CLIENT_CERT": "/etc/key.pem",
        "UV_HTTP_RETRIES": "7",
    }


def test_a_variable_of_uv_wins_over_pips_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://pip.example/simple")
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    assert pip_settings.uv_environment()["UV_DEFAULT_INDEX"] == "https://pip.example/simple"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://uv.example/simple")
    assert pip_settings.uv_environment()["UV_DEFAULT_INDEX"] == "https://uv.example/simple"


def test_the_module_runs_a_program_with_these_variables_and_needs_no_package(tmp_path: Path) -> None:
    source = Path(pip_config.__file__).parents[2]
    argv = [sys.executable, "-I", "-S", "-c"]
    code = f"import sys; sys.path.insert(0, {str(source)!r}); import headfirst.control.machine.pip_settings"
    assert subprocess.run([*argv, code], check=False).returncode == 0
    argv = [sys.executable, "-m", "headfirst.control.machine.pip_settings", "/usr/bin/env"]
    environment = os.environ | {"PIP_INDEX_URL": "https://pip.example/simple", "PYTHONPATH": str(source)}
    environment.pop("UV_DEFAULT_INDEX", None)
    printed = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout
    assert "UV_DEFAULT_INDEX=https://pip.example/simple" in printed.splitlines()
