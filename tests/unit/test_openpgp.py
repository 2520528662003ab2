"""Keys of OpenPGP files, against keys that gpg made."""

from __future__ import annotations

import base64

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils.openpgp import armoured, public_keys

# gpg --quick-gen-key one@example rsa2048 sign, then gpg --armor --export; the fingerprints are as gpg says.
ONE = """-----BEGIN PGP PUBLIC KEY BLOCK-----

mQENBGsBUt0BCADYtL8nkFC0YQjLEO1dnMCcsxnL4c9kKqqiVMEDfAGCRyprz/ab
GQN/pejrvL5+G5bEGT5aSO6ovQH1KQXmibCLQ0Sqpmx2t3v1FUNIMBR06Edv5R4T
qMC2epMwV2Yo8oHOVEIcRxqFBY7tSji5a4RAI7ot21L/bpwilYsT6zkVvsHkP8Pl
P7g7vCEnmy4vmghWGQhJv1/hXUGRHrwGU/8qyPUtuB7RQbTvahXYiou8G8byWmiy
M45nWsqUA2n43mZD9izC2OYq6DA2/MS8Sz3LvgVrKn0n9bTsq4/5yGM0r1Z/d3Zm
r6uZKoX3RiGuZM+Tf2O29u9+5yoKGbUionY3ABEBAAG0C29uZUBleGFtcGxliQFO
BBMBCgA4FiEEAPDEkXBEjTPgXTCM1JhOLMbP5VUFAmsBUt0CGwMFCwkIBwIGFQoJ
CAsCBBYCAwECHgECF4AACgkQ1JhOLMbP5VVt5Af+PB+H1Q0VaPZhH9crmGFPTIXt
SsQ0cQjMO6RoghntpMv2I2RjaSWQpRHXDb3lBGdWbjcNaNOkEeoW+Ahvxsmn/1qJ
lq8RYF4EE6kXsPcP43vXizqg5aLcL4n0B8oPp5E9MUflLJWL7pLl94sfcUGwb7Yj
ua5Sz+TyA5YdGzkjnFjq8acByYVozD1g8RBY+s6GFpAgPNh4veO/qvnKoj5g9GF4
5V8g0aZ6epXlU2AUSH9/iY3lkZvj/0l2eCBzzvqtJfpacPX9xTT8vAV6F8qnML8n
KJ7dtlQu2IWSd1di2yGKzmHCUzaxd2x6klMdEAGUlnYLLEiYUshIRwXY88+1FA==
=KNWF
-----END PGP PUBLIC KEY BLOCK-----
"""
TWO = """-----BEGIN PGP PUBLIC KEY BLOCK-----

mQENBGsBUt0BCADR/CVgob7YzpvJWVInfm8/Ux6chBLBJIMpP69HYQDrm2+MkPqt
yQ2eA6A7NhrgOKlZy2eK8fEinI7OpkpKwUiQ/ksgdN44ki6HO//zvIctmL0usl3p
no8k+viKw7fJug0m3fgG4xiwOzwYyBRqgRLG9s/8y5HJsc+4XZNnDlg2IhmCAee8
/R2T0zBDrpCotk8nklksBlG0OargJ/bHECq3XdQR3R/oId30tGaS+JQc1WhC68fE
5YEIMyfbSVYfi3votaKjnTcvxOnZGH3w4U179R0/pZ7Rp//6m2sZVszUqC8K/+ho
Cyz41SI93y8YTk4Qnr4WLEzVuL8S47S+0XCLABEBAAG0C3R3b0BleGFtcGxliQFO
BBMBCgA4FiEEqxXIIV9dmlKpyiaVb6aroRa6HUUFAmsBUt0CGwMFCwkIBwIGFQoJ
CAsCBBYCAwECHgECF4AACgkQb6aroRa6HUXWzggAuoUCU8wQWONWsK2fZN6id39g
lHDuo7H+UHN78pgWzgsrd413hC15ofFl1o3vqd71E55RAxlNmMXz/BfFGz9yaugk
VNgWCiNjSxhCY6iHPc9ql1yPO1trSkweD11gOuykdJeOYugkZNTv2z1TYpcE6fgM
A6F6HKFdBKUDbB+fxxV6vljwMAZxKpXQ3f3UvLnA84h44O48yT36vAF5RmkrHoCc
u8KNlu6tNQQKWG+RY6Vc8/KCtvfKUz76D/XrJotVn/QzE42lhue8TBz/hCqdFiQD
JSljiTd6IzwHLB+ktThiwyRlSfT1Zk3DGjHZNaSu07colkZf9Cf7lEAN1KWfTQ==
=lNNy
-----END PGP PUBLIC KEY BLOCK-----
"""
FINGERPRINTS = ["00F0C49170448D33E05D308CD4984E2CC6CFE555", "AB15C8215F5D9A52A9CA26956FA6ABA116BA1D45"]


def binary(text: str) -> bytes:
    lines = text.strip().splitlines()[2:-1]
    return base64.b64decode("".join(line for line in lines if not line.startswith("=")))


def packet(tag: int, body: bytes) -> bytes:
    return bytes([0xC0 | tag, 0xFF]) + len(body).to_bytes(4, "big") + body


def test_a_key_with_and_without_armour_is_written_as_gpg_writes_it() -> None:
    one = {FINGERPRINTS[0]: binary(ONE)}
    assert public_keys(ONE.encode()) == one
    assert public_keys(binary(ONE)) == one
    assert public_keys(ONE.replace("\n", "\r\n").encode()) == one
    assert armoured(binary(ONE)).decode() == ONE


@pytest.mark.parametrize(
    "data", [(ONE + TWO).encode(), binary(ONE) + binary(TWO)], ids=["armoured", "binary"]
)
def test_the_keys_of_a_file_are_kept_apart(data: bytes) -> None:
    assert public_keys(data) == {FINGERPRINTS[0]: binary(ONE), FINGERPRINTS[1]: binary(TWO)}


def test_a_key_in_a_part_with_another_name_is_not_read() -> None:
    foreign = TWO.replace("PGP PUBLIC KEY BLOCK", "PGP X")
    assert public_keys((foreign + ONE).encode()) == {FINGERPRINTS[0]: binary(ONE)}
    assert public_keys((ONE + foreign).encode()) == {FINGERPRINTS[0]: binary(ONE)}


def test_packets_that_do_not_belong_to_a_key_are_left_out() -> None:
    key = binary(ONE)
    stranger = packet(2, b"before the key") + packet(13, b"before the key")
    photo = packet(17, b"photo") + packet(2, b"of the photo")
    others = packet(12, b"trust") + packet(10, b"PGP") + packet(21, b"padding")
    assert public_keys(stranger + key + others + photo + key) == {FINGERPRINTS[0]: key + body_of(key)}


def body_of(key: bytes) -> bytes:
    """The packets after the first one, whose header has two length bytes."""
    return key[3 + int.from_bytes(key[1:3], "big") :]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>Not found</html>",
        ONE.encode().replace(b"m", b"!", 1)[:-60],
        body_of(binary(ONE)),
        binary(ONE)[:-1],
        binary(ONE) + b"\x99",
        binary(ONE) + b"\xc6",
        b"\x99\x00\x01\x05",
        packet(6, b"\x04" + bytes(70_000)),
    ],
    ids=[
        "empty",
        "a page",
        "damaged armour",
        "no primary key",
        "ends early",
        "no length",
        "no new length",
        "version 5",
        "too long",
    ],
)
def test_what_is_no_key_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        public_keys(data)
