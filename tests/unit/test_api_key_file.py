"""`api_key_file`: which files on the controller are read, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from headfirst.common.errors import InputError
from headfirst.control.deployment import api_keys
from headfirst.control.deployment.prepare import prepare
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.types import Cluster

KEY = "sk-clients/have+it=01"
OTHER = "sk-another-0123456789"
ONE = "[head]\nn1 ansible_host=192.0.2.7 cpu_cores=0-3\n[all:vars]\nengine_device=cpu\nmodel_source=demo\n"
TWO = """\
[chat]
n1 ansible_host=192.0.2.7 cpu_cores=0-3
[embedding]
n2 ansible_host=192.0.2.8 cpu_cores=0-3
[chat:vars]
model=headfirst-demo
api_key_file=keys/chat
[embedding:vars]
model=headfirst-demo-embedding
[all:vars]
engine_device=cpu
model_source=demo
"""


def key_file(path: Path, content: str | bytes = f"{KEY}\n", mode: int = 0o600) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return path


def inventory(folder: Path, text: str) -> Path:
    path = folder / "mine.ini"
    path.write_text(text)
    return path


def cluster_with(folder: Path, value: object) -> Cluster:
    return load([inventory(folder, f"{ONE}api_key_file={value}\n")])


@pytest.mark.parametrize("written", [KEY, f"{KEY}\n", f"{KEY}\r\n", "x" * 8, "x" * 200])
def test_the_key_is_the_line_of_the_file(tmp_path: Path, written: str) -> None:
    key_file(tmp_path / "key", written)
    assert api_keys.read(cluster_with(tmp_path, "key")) == {None: written.strip()}


def test_the_path_starts_at_the_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key_file(tmp_path / "key")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir("/")
    (tmp_path / "link").symlink_to("key")
    for value in ("key", "./key", "~/key", tmp_path / "key", "link"):
        assert api_keys.read(cluster_with(tmp_path, value)) == {None: KEY}
    assert api_keys.read(load([inventory(tmp_path, ONE)])) == {}


def test_a_service_has_its_own(tmp_path: Path) -> None:
    key_file(tmp_path / "keys" / "chat")
    assert api_keys.read(load([inventory(tmp_path, TWO)])) == {"chat": KEY}
    key_file(tmp_path / "every", OTHER)
    both = load([inventory(tmp_path, f"{TWO}api_key_file=every\n")])
    assert api_keys.read(both) == {"chat": KEY, "embedding": OTHER}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        (f"{KEY}\n{OTHER}\n", "more than one line"),
        (f"{KEY}\n\n", "more than one line"),
        (f" {KEY}", "character 1"),
        (f"{KEY} ", f"character {len(KEY) + 1}"),
        ("sk-with space", "character 8"),
        ("sk-with\ttab", "character 8"),
        ("sk-with\0nul", "character 8"),
        ("sk-with\x1b[31m", "character 8"),
        ("sk-schlüssel", "character 8"),
        (b"sk-\xff\xfe\xff\xff\xff", "character 4"),
        ("\ufeffsk-0123456789", "character 1"),
        ("sk-{{ lookup }}", "character 4"),
        ("sk-'quote'", "character 4"),
        ("sk-one;sk-two", "character 7"),
        ("-sk-0123456789", "character 1"),
        ("x" * 7, "7 characters"),
        ("x" * 201, "more than 200 characters"),
        ("x" * 100_000, "more than 200 characters"),
    ],
)
def test_what_is_no_key_is_refused(tmp_path: Path, content: str | bytes, words: str) -> None:
    path = key_file(tmp_path / "key", content)
    with pytest.raises(InputError, match=words) as caught:
        api_keys.read(cluster_with(tmp_path, "key"))
    shown = f"{caught.value}{caught.value.where}{caught.value.hint}"
    assert str(path) in shown and caught.value.hint
    parts = content.split("\n") if isinstance(content, str) else []
    assert not [part for part in parts if len(part) > 6 and part in shown]


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o620])
def test_a_file_of_others_is_refused(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path / "key", mode=mode)
    with pytest.raises(InputError, match="others can") as caught:
        api_keys.read(cluster_with(tmp_path, "key"))
    assert caught.value.hint == f"chmod 600 {path}"


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    for name in ("pipe", "folder", "/dev/null"):
        with pytest.raises(InputError, match="no regular file") as caught:
            api_keys.read(cluster_with(tmp_path, name))
        assert caught.value.hint
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="cannot be read"):
        api_keys.read(cluster_with(tmp_path, "loop"))


def test_a_key_in_place_of_a_path_is_not_printed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="names no file") as caught:
        api_keys.read(cluster_with(tmp_path, KEY))
    shown = f"{caught.value}{caught.value.where}{caught.value.hint}"
    assert KEY not in shown
    assert f"{tmp_path}/mine.ini:6" in shown and "api_key_file=PATH" in shown
    with pytest.raises(InputError, match="names no file"):
        api_keys.read(cluster_with(tmp_path, "~nobody-of-this-name/key"))
    long = "x" * 5000
    with pytest.raises(InputError) as caught:
        api_keys.read(cluster_with(tmp_path, long))
    assert long not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize("name", ["api_key", "engine_api_key", "open_webui_engine_api_key"])
def test_a_key_in_the_inventory_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=name) as caught:
        prepare([inventory(tmp_path, f"{ONE}{name}={KEY}\n")], [], probe=False)
    assert "api_key_file" in (caught.value.hint or "")
    assert KEY not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize(
    "engine",
    [
        "sglang\nengine_args=--api-key k",
        "vllm\nengine_args=--api-key k",
        "lmdeploy\nengine_args=--api-keys k",
    ],
)
def test_an_argument_with_a_key_names_the_setting(tmp_path: Path, engine: str) -> None:
    text = ONE.replace("engine_device=cpu", "engine_device=cuda").replace(
        "192.0.2.7", "192.0.2.7 gpus=1 gpu=A100-80G"
    )
    with pytest.raises(InputError) as caught:
        prepare([inventory(tmp_path, f"{text}engine={engine}\n")], [], probe=False)
    assert "api_key_file=PATH" in f"{caught.value}{caught.value.hint}"
