"""Module apt_key_file, and what apt itself makes of the file: an attacker's repository stays refused."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.headfirst.serving.plugins.module_utils.openpgp import armoured, public_keys
from ansible_collections.headfirst.serving.plugins.modules import apt_key_file

DATA = Path(__file__).parent / "data" / "apt_key"
OWNER, ATTACKER = ((DATA / f"{who}.asc").read_text() for who in ("owner", "attacker"))
FINGERPRINT = (DATA / "owner.fingerprint").read_text().strip()
FOREIGN = (DATA / "attacker.fingerprint").read_text().strip()
BLOCK = "PGP PUBLIC KEY BLOCK"


def binary(text: str) -> bytes:
    lines = text.strip().splitlines()[2:-1]
    return base64.b64decode("".join(line for line in lines if not line.startswith("=")))


def packets(data: bytes) -> list[tuple[int, bytes]]:
    """Tag of each packet, and the packet, of what gpg exported: old headers of one or two length bytes."""
    found = []
    while data:
        width = 1 << (data[0] & 3)
        end = 1 + width + int.from_bytes(data[1 : 1 + width], "big")
        found.append((data[0] >> 2 & 0x0F, data[:end]))
        data = data[end:]
    return found


def stolen_subkey(binding: bytes) -> bytes:
    """The owner's key, then the attacker's subkey with a binding signature that is not the owner's for it."""
    subkey = next(packet for tag, packet in packets(binary(ATTACKER)) if tag == 14)
    return binary(OWNER) + subkey + binding


# The last packet of each is the binding signature of its subkey.
OWNERS_BINDING, ATTACKERS_BINDING = (packets(binary(text))[-1][1] for text in (OWNER, ATTACKER))
SERVED = {
    "the key": OWNER.encode(),
    "the key, binary": binary(OWNER),
    "a part with another name before it": (ATTACKER.replace(BLOCK, "PGP X") + OWNER).encode(),
    "a part with another name after it": (OWNER + ATTACKER.replace(BLOCK, "PGP X")).encode(),
    "a second key": (OWNER + ATTACKER).encode(),
    "a second key before it": (ATTACKER + OWNER).encode(),
    "a second key in the same block": armoured(binary(OWNER) + binary(ATTACKER)),
    "a second key, binary": binary(ATTACKER) + binary(OWNER),
    "a foreign subkey": stolen_subkey(ATTACKERS_BINDING),
    "a foreign subkey with the owner's binding": stolen_subkey(OWNERS_BINDING),
}
ENDINGS = (".asc", ".gpg")


def run(capsys: pytest.CaptureFixture[str], **arguments: Any) -> dict[str, Any]:
    with patch_module_args(arguments), pytest.raises(SystemExit):
        apt_key_file.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def place(folder: Path, served: bytes, ending: str, capsys: pytest.CaptureFixture[str]) -> Path:
    """The file that the module writes for what a server sends."""
    (folder / "served").write_bytes(served)
    dest = folder / f"key{ending}"
    result = run(capsys, url=(folder / "served").as_uri(), fingerprint=FINGERPRINT, dest=str(dest))
    assert result.get("changed"), result
    return dest


def refused(folder: Path, key: Path) -> str:
    """What `apt-get update` prints of the attacker's repository; empty where it takes it.

    The owner's repository must be taken in the same run. Folders and lists are below `folder`.
    """
    lists = folder / "state" / "lists"
    for name in (
        lists / "partial",
        folder / "cache" / "archives" / "partial",
        folder / "etc",
        folder / "log",
    ):
        name.mkdir(parents=True)
    (folder / "status").touch()
    for signer in ("owner", "attacker"):
        (folder / signer).mkdir()
        shutil.copy(DATA / f"{signer}.InRelease", folder / signer / "InRelease")
        (folder / signer / "Packages").touch()
        with (folder / "sources.list").open("a") as sources:
            sources.write(f"deb [signed-by={key}] {(folder / signer).as_uri()} ./\n")
    settings = {
        "Dir::Etc": folder / "etc",
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "-",
        "Dir::State": folder / "state",
        "Dir::State::Status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Log": folder / "log",
        # The folder of a test is closed to apt's own user.
        "APT::Sandbox::User": "root",
    }
    # Nothing else of the machine is to change, so the hooks of its packages are left out.
    (folder / "apt.conf").write_text("#clear APT::Update::Post-Invoke-Success;\n")
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    done = subprocess.run(
        ["apt-get", *options, "update"],
        env=os.environ | {"APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert list(lists.glob("*_owner_*InRelease")), done.stderr
    assert (done.returncode == 0) == bool(list(lists.glob("*_attacker_*InRelease")))
    return done.stderr


CASES = [*((served, ".asc") for served in SERVED), ("the key", ".gpg"), ("a second key, binary", ".gpg")]


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt")
@pytest.mark.parametrize(("served", "ending"), CASES)
def test_apt_takes_the_owners_repository_and_not_the_attackers(
    served: str, ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = place(tmp_path, SERVED[served], ending, capsys)
    assert "attacker ./ InRelease' is not signed" in refused(tmp_path, key)


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt")
@pytest.mark.parametrize("served", ["a part with another name before it", "a second key in the same block"])
def test_apt_would_take_both_with_the_bytes_that_were_served(served: str, tmp_path: Path) -> None:
    """The attack works where a file is not written again, so the test above can fail."""
    key = tmp_path / "served.asc"
    key.write_bytes(SERVED[served])
    assert refused(tmp_path, key) == ""


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_file_holds_the_key_alone(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dest = place(tmp_path, SERVED["a second key before it"], ending, capsys)
    data = dest.read_bytes()
    assert public_keys(data) == {FINGERPRINT: binary(OWNER)}
    assert data == (OWNER.encode() if ending == ".asc" else binary(OWNER))
    assert dest.stat().st_mode & 0o777 == 0o644


def test_a_file_with_other_content_is_written_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dest = place(tmp_path, OWNER.encode(), ".asc", capsys)
    arguments = {"url": (tmp_path / "served").as_uri(), "fingerprint": FINGERPRINT, "dest": str(dest)}
    assert run(capsys, **arguments)["changed"] is False
    dest.write_bytes(SERVED["a part with another name before it"])
    assert run(capsys, **arguments)["changed"] is True
    assert dest.read_bytes() == OWNER.encode()


def test_another_key_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "served").write_text(ATTACKER)
    dest = tmp_path / "key.asc"
    result = run(capsys, url=(tmp_path / "served").as_uri(), fingerprint=FINGERPRINT, dest=str(dest))
    assert result["failed"] and f"holds {FOREIGN}, not the key {FINGERPRINT}" in result["msg"]
    assert not dest.exists()


def test_a_name_that_apt_does_not_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(capsys, url="file:///absent", fingerprint=FINGERPRINT, dest=str(tmp_path / "key.pub"))
    assert result["failed"] and "end in .asc or .gpg" in result["msg"]
