"""How many hosts Ansible works on at a time: as many as there are, as memory allows, or as the user set."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from headfirst.collection import collection_root
from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.run import environment as module
from headfirst.control.run.environment import FORK_BYTES, allow_open_files, forks, free_memory, require_all


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of Ansible but those of the test; memory for a thousand hosts."""
    for name in ("ANSIBLE_FORKS", "ANSIBLE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "free_memory", lambda: 1000 * FORK_BYTES)


@pytest.mark.parametrize("hosts", [21, 100, 1000])
def test_there_is_a_fork_for_each_host(hosts: int) -> None:
    assert forks(hosts) == hosts
    require_all(hosts)


def test_a_larger_number_in_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_FORKS", "64")
    assert forks(30) == 64
    assert forks(100) == 100


def test_a_larger_number_in_the_configuration_wins(tmp_path: Path) -> None:
    (tmp_path / "ansible.cfg").write_text("[defaults]\nforks = 48\n")
    assert forks(30) == 48
    assert forks(100) == 100


def test_memory_limits_the_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert forks(5000) == 1000
    with pytest.raises(NotReadyError) as caught:
        require_all(5000)
    assert "5000 hosts" in caught.value.what
    assert "ANSIBLE_FORKS=5000" in (caught.value.hint or "")
    monkeypatch.setenv("ANSIBLE_FORKS", "5000")
    require_all(5000)


def test_a_setting_that_is_no_number_is_an_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_FORKS", "many")
    with pytest.raises(InputError, match="many"):
        forks(30)


def test_free_memory_is_what_the_machine_and_its_container_have(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 64 kB\nMemAvailable: 32 kB\n")
    assert free_memory(meminfo, tmp_path) == 32 * 1024
    (tmp_path / "memory.max").write_text("20000\n")
    (tmp_path / "memory.current").write_text("18000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 3000\n")
    assert free_memory(meminfo, tmp_path) == 5000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(meminfo, tmp_path) == 32 * 1024
    assert free_memory(tmp_path / "none", tmp_path / "none") > 0


def test_all_open_files_are_allowed() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[1]), before[1]))
    try:
        allow_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("folder", ["plugins", "roles", "playbooks", "py"])
def test_no_message_advises_an_option_that_deploy_lacks(folder: str) -> None:
    files = [path for kind in ("py", "yml", "md") for path in (collection_root() / folder).rglob(f"*.{kind}")]
    assert files
    assert [str(path) for path in files if "--forks" in path.read_text()] == []
