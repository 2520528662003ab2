"""pip's settings of this machine work on a node: named files are copied, local folders are left out."""

from __future__ import annotations

import configparser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from headfirst.control import pip_config
from headfirst.control.lab.node_pip import FOLDER, for_node
from headfirst.control.lab.types import NodeConfig
from headfirst.control.pip_config import default_index


def translated(tmp_path: Path, conf: str, **variables: str) -> tuple[dict[str, dict[str, str]], NodeConfig]:
    file = tmp_path / "pip.conf"
    file.write_text(conf)
    made = for_node(pip_config.read(variables, [file]), variables)
    parser = configparser.RawConfigParser()
    parser.read_string(made.conf)
    return {section: dict(parser[section]) for section in parser.sections()}, made


def test_a_variable_outranks_every_section_of_the_files(tmp_path: Path) -> None:
    conf = "[global]\ntimeout = 10\n[install]\nindex-url = https://file.example/simple\n"
    sections, _ = translated(tmp_path, conf, PIP_INDEX_URL="https://variable.example/simple")
    assert sections == {"global": {"timeout": "10", "index-url": "https://variable.example/simple"}}


@pytest.mark.parametrize("option", ["constraint", "requirement", "build-constraint"])
def test_a_file_of_requirements_is_copied_and_the_setting_names_the_copy(tmp_path: Path, option: str) -> None:
    (tmp_path / "pins.txt").write_text("six<2\n")
    sections, made = translated(tmp_path, f"[global]\n{option} = {tmp_path}/pins.txt\n")
    assert sections == {"global": {option: f"/{FOLDER}/0-pins.txt"}}
    assert made.files == {f"{FOLDER}/0-pins.txt": b"six<2\n"}
    assert made.left_out == []


def test_variables_and_file_urls_name_files_too(tmp_path: Path) -> None:
    (tmp_path / "pins.txt").write_text("six<2\n")
    sections, _ = translated(
        tmp_path, "", PIP_CONSTRAINT=f"file://{tmp_path}/pins.txt https://x.example/c.txt"
    )
    assert sections["global"]["constraint"].split() == [f"/{FOLDER}/0-pins.txt", "https://x.example/c.txt"]


def test_files_that_a_file_includes_come_along_even_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "pins.txt").write_text("-r more/base.txt\n--constraint=more/base.txt\nsix<2\n")
    (tmp_path / "more/base.txt").write_text("-c ../pins.txt  # back again\nidna \\\n  <4\n")
    _, made = translated(tmp_path, f"[global]\nconstraint = {tmp_path}/pins.txt\n")
    pins, base = f"{FOLDER}/0-pins.txt", f"{FOLDER}/1-base.txt"
    assert made.files == {
        pins: f"-r /{base}\n--constraint /{base}\nsix<2\n".encode(),
        base: f"-c /{pins}\nidna   <4\n".encode(),
    }


def test_lines_that_name_files_of_this_machine_are_left_out(tmp_path: Path) -> None:
    lines = [
        "numpy @ file:///build/numpy.whl",
        "./local.whl ; python_version > '3'",
        "-e ../project",
        "--find-links /opt/wheels",
        "-f/opt/wheels",
        "-c missing.txt",
        "--extra-index-url https://x.example/simple",
        "idna @ https://x.example/idna.whl",
        "six[a]==1.0 --hash=sha256:00",
        "token @ https://${NAME}@x.example/t.whl",
    ]
    (tmp_path / "pins.txt").write_text("\n".join(lines))
    _, made = translated(tmp_path, f"[global]\nconstraint = {tmp_path}/pins.txt\n", NAME="me")
    assert made.files[f"{FOLDER}/0-pins.txt"].decode().splitlines() == [
        "--extra-index-url https://x.example/simple",
        "idna @ https://x.example/idna.whl",
        "six[a]==1.0 --hash=sha256:00",
        "token @ https://me@x.example/t.whl",
    ]
    assert len(made.left_out) == 6
    assert all("pip's constraint" in line and "pins.txt" in line for line in made.left_out)


def test_folders_of_this_machine_are_left_out_and_named(tmp_path: Path) -> None:
    conf = (
        "[global]\nfind-links = /opt/wheels https://links.example/\n"
        "extra-index-url = file:///srv/simple https://me:secret@mirror.example/simple\n"
        "index-url = http://127.0.0.1:3141/simple\ncache-dir = /var/cache/pip\n"
    )
    sections, made = translated(tmp_path, conf)
    assert sections == {
        "global": {
            "find-links": "https://links.example/",
            "extra-index-url": "https://me:secret@mirror.example/simple",
        }
    }
    said = "\n".join(made.left_out)
    for named in (
        "find-links: /opt/wheels",
        "file:///srv/simple",
        "http://127.0.0.1:3141",
        "cache-dir: /var/cache",
    ):
        assert named in said
    assert len(made.left_out) == 4


def test_a_named_file_that_is_missing_is_left_out(tmp_path: Path) -> None:
    sections, made = translated(tmp_path, "[global]\nconstraint = /not/there.txt\ncert = /not/there.pem\n")
    assert sections == {}
    assert len(made.left_out) == 2


def test_certificates_are_copied_also_those_that_other_variables_name(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    for variables in ({"PIP_CERT": f"{tmp_path}/ca.pem"}, {"REQUESTS_CA_BUNDLE": f"{tmp_path}/ca.pem"}):
        sections, made = translated(tmp_path, "", **variables)
        assert sections == {"global": {"cert": f"/{FOLDER}/cert.pem"}}
        assert made.files == {f"{FOLDER}/cert.pem": b"-----BEGIN CERTIFICATE-----"}
    sections, made = translated(tmp_path, f"[install]\nclient-cert = {tmp_path}/ca.pem\n")
    assert sections == {"install": {"client-cert": f"/{FOLDER}/client-cert.pem"}}


def test_a_folder_of_certificates_becomes_one_file(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.pem").write_text(f"-----BEGIN CERTIFICATE-----{name}")
    (folder / "README").write_text("no certificate")
    _, made = translated(tmp_path, f"[global]\ncert = {folder}\n")
    (content,) = made.files.values()
    assert content == b"-----BEGIN CERTIFICATE-----a\n-----BEGIN CERTIFICATE-----b"


def test_a_proxy_of_the_environment_reaches_pip_unless_the_index_is_excepted(tmp_path: Path) -> None:
    proxy = {"https_proxy": "http://proxy.example:3128"}
    assert translated(tmp_path, "", **proxy)[0] == {"global": {"proxy": "http://proxy.example:3128"}}
    assert translated(tmp_path, "", **proxy, no_proxy=urlsplit(default_index()).netloc)[0] == {}
    sections, made = translated(tmp_path, "", https_proxy="http://localhost:3128")
    assert (sections, len(made.left_out)) == ({}, 1)


def test_no_settings_make_no_file(tmp_path: Path) -> None:
    assert translated(tmp_path, "[global]\nfind-links = /opt/wheels\n")[1].conf == ""
