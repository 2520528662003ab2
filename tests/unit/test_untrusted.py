"""What comes from outside is proven or refused; random and hostile values never pass or crash a check."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from headfirst.common import untrusted
from headfirst.common.untrusted import UntrustedError
from together import together

TEMPLATE = "{{ lookup('pipe', 'id') }}"
NOT_TEXT: list[Any] = [None, 1, 1.5, True, b"eth0", ["eth0"], {"a": 1}, 10**6000]
# Each is a way out of a folder, or a name that a later step would read as something else.
BAD_PATHS = [
    "",
    ".",
    "..",
    "/etc/passwd",
    "//etc/passwd",
    "../up",
    "a/../b",
    "a/./b",
    "a//b",
    "a/",
    "a/..",
    "..\\up",
    "a\\b",
    "C:/x",
    "C:x",
    "a\x00b",
    "a\nb",
    "a\x1b[2Jb",
    "a\x9bb",
    "a\u202eb",
    "a\u2028b",
    "a\ud800b",
    " a",
    "a ",
    "a/ b",
    "x" * 256,
    "é" * 128,
    "a/" * 600 + "b",
]


def random_texts(seed: int, count: int) -> list[str]:
    """Texts of random length out of characters that matter somewhere."""
    chance = random.Random(seed)
    alphabet = "abcXYZ019 ._-:@/\\{}%'\"$`;|&<>\t\n\r\x00\x07\x08\x1b\x7f\x85\x9b\xa0é™"
    alphabet += "\u200b\u202e\u2028\ud800\U0001f600"
    return ["".join(chance.choices(alphabet, k=chance.randrange(40))) for _ in range(count)]


def check_of(name: str, **more: Any) -> Callable[[Any], Any]:
    return partial(getattr(untrusted, name), what="a name", where="node1", **more)


DEVICE, PRODUCT, LINE = check_of("device_name"), check_of("product_name"), check_of("line")
DIGEST, OBJECT = check_of("hex_digest", digits=64), check_of("json_object", limit=2)
NUMBER, SIGN = check_of("integer"), check_of("integer", low=-1, high=1)


@together(
    ("check", "values"),
    [
        (DEVICE, ["eth0", "enp1s0f0np0", "mlx5_10", "br-1f2e", "eth0.100", "veth1@if5", "ib0:1"]),
        (PRODUCT, ["NVIDIA A100-SXM4-80GB", "Quadro RTX 6000/8000", "A™"]),
        (PRODUCT, ["NVIDIA RTX PRO 6000 Blackwell (Server)"]),
        (LINE, ["Grüße, 你好 😀"]),
        (NUMBER, [0, 1, 2**63 - 1]),
        (SIGN, [-1, 0, 1]),
        (DIGEST, ["0f" * 32]),
        (OBJECT, [{"a": 1}]),
        (
            lambda path: str(untrusted.relative_path(path)),
            ["a", "a/b.c", ".gitattributes", "..a", "a..", "你好/é", "a b", "-"],
        ),
    ],
)
def test_what_a_check_accepts_is_returned_as_it_is(check: Callable[[Any], Any], values: list[Any]) -> None:
    assert [check(value) for value in values] == values


REFUSED: list[tuple[Callable[[Any], Any], str, list[Any]]] = [
    (DEVICE, "a name", ["", "-rf", ".hidden", "eth 0", "eth0\n", "eth0;id", "a/b", "a,b", "e" * 65]),
    (DEVICE, "a name", ["$(id)", "`id`", TEMPLATE, "éth0"]),
    (PRODUCT, "a name", ["", " A100", TEMPLATE, "A100\n", "A100\x1b[0m", "{%x%}", "x" * 129]),
    (LINE, "a name", ["a\nb", "a\x1bb", "a\x9bb", "a\u202eb", "\ud800", "x" * 1025]),
    *((check, "is not text", NOT_TEXT) for check in (DEVICE, PRODUCT, LINE)),
    (NUMBER, "not an integer from 0 to 9", [True, 1.0, "1", None, -1, 2**63, 2**64, 10**6000]),
    (NUMBER, "not an integer from 0 to 9", [[], float("nan")]),
    (SIGN, "not an integer from -1 to 1", [-2, 2]),
    (DIGEST, "a name", ["", "a" * 63, "a" * 65, "A" * 64, "g" * 64, "a" * 63 + "\n", None, 5, b"a" * 64]),
    (OBJECT, "not an object of at most 2 names", [None, [], "{}", 5, {"a": 1, "b": 2, "c": 3}]),
    (partial(untrusted.relative_path, where="node1"), "file", [*BAD_PATHS, *NOT_TEXT]),
    (lambda path: untrusted.file_listing(["good", path], where="node1"), "file", [*BAD_PATHS, *NOT_TEXT]),
]


@together(
    ("check", "words", "value"),
    [(check, words, value) for check, words, values in REFUSED for value in values],
)
def test_what_a_check_refuses_has_its_place(check: Callable[[Any], Any], words: str, value: Any) -> None:
    with pytest.raises(UntrustedError, match=words) as raised:
        check(value)
    assert raised.value.where == "node1"


@pytest.mark.parametrize(
    "names",
    [
        ["a", "a"],
        ["A.json", "a.json"],
        ["e\u0301", "é"],
        ["straße", "STRASSE"],
        ["a", "a/b"],
        ["d/a/b", "D/A"],
        ["ﬁle", "file"],
    ],
)
def test_names_that_clash(names: list[str]) -> None:
    for order in (names, names[::-1]):
        with pytest.raises(UntrustedError, match="the file list has"):
            untrusted.file_listing(order)


def test_a_file_list_is_kept_in_its_order_and_has_a_limit() -> None:
    names = ["config.json", "a/x", "a/y", "b"]
    assert untrusted.file_listing(iter(names)) == names
    with pytest.raises(UntrustedError, match="more than 3 names"):
        untrusted.file_listing(names, limit=3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        (b"\xff\xfe\xfd", "not JSON"),
        ('{"a": 1, "a": 2}', "name twice"),
        ("9" * 5000, "not JSON"),
        ("[" * 100_000, "nested more than 64 deep"),
        ("[" * 65 + "]" * 65, "nested more than 64 deep"),
        ('{"a":' * 65 + "1" + "}" * 65, "nested more than 64 deep"),
        ("[" + "1," * 100 + "1]", "larger than 150 bytes"),
    ],
)
def test_what_is_no_acceptable_json(text: Any, words: str) -> None:
    limit = 150 if "larger" in words else 1 << 20
    with pytest.raises(UntrustedError, match=words) as raised:
        untrusted.json_document(text, what="x", where="node1", limit=limit)
    assert raised.value.where == "node1"


def test_json_and_streams_at_their_bounds() -> None:
    assert untrusted.json_document("[" * 64 + "]" * 64, what="x")
    assert untrusted.json_document('{"a": [1, null, {}]}', what="x") == {"a": [1, None, {}]}
    read = iter([b"12", b"34", b"5", b"never"])
    with pytest.raises(UntrustedError, match="larger than 4 bytes"):
        untrusted.joined(read, what="x", limit=4)
    assert next(read) == b"never"
    assert untrusted.joined([b"12", b"34"], what="x", limit=4) == b"1234"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (zlib.compress(bytes(1001)), "larger than 1000 bytes"),
        (zlib.compress(bytes(10**8)), "larger than 1000 bytes"),
        (zlib.compress(bytes(1000))[:-1], "cut off"),
        (b"", "cut off"),
        (b"hello", "not zlib"),
    ],
    ids=len,
)
def test_inflate_up_to_the_limit(data: bytes, words: str) -> None:
    for size in (0, 1, 999, 1000):
        assert untrusted.inflate(zlib.compress(bytes(size)), what="x", limit=1000) == bytes(size)
    with pytest.raises(UntrustedError, match=words):
        untrusted.inflate(data, what="x", limit=1000)


@together(
    ("text", "clean"),
    [
        ("plain", "plain"),
        ("two\nlines\tand 你好 😀", "two\nlines\tand 你好 😀"),
        ("می\u200cخواهم 👩\u200d💻", "می\u200cخواهم 👩\u200d💻"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]52;c;c2VjcmV0\x07after", "after"),
        ("\x1b]0;title\x1b\\after", "after"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("\x1b]0;no end", "]0;no end"),
        ("\x1b[?1049hx\x1b(0y\x1bcz", "xyz"),
        ("\x9b31mx\x9d0;t\x9c", "31mx0;t"),
        ("over\rwrite\x08\x7f\x00", "overwrite"),
        ("a\u202eb\u200b\u2028c", "abc"),
        ("\x1b", ""),
        ("\x1b\x1b[31m[31mx", "[31mx"),
        ("\x1b]0;\x1b[31mx\x07", "]0;x"),
    ],
)
def test_text_for_a_terminal(text: str, clean: str) -> None:
    assert untrusted.for_terminal(text) == clean


def test_colours_may_stay_and_nothing_else() -> None:
    text = "\x1b[1;31mred\x1b[0m \x1b[2J\x1b]8;;http://x\x07link\x1b]0;\x1b[31mx\x07"
    assert untrusted.for_terminal(text, colours=True) == "\x1b[1;31mred\x1b[0m link]0;\x1b[31mx"


@together("seed", range(20))
def test_random_texts_never_pass_a_check_with_what_it_refuses(seed: int) -> None:
    for text in random_texts(seed, 500):
        shown = untrusted.for_terminal(text)
        assert all(char in "\n\t" or (char.isprintable() or char == "\xa0") for char in shown), ascii(text)
        assert untrusted.shown(text).isprintable() or "\xa0" in text
        assert "\n" not in untrusted.shown(text)
        for check in (untrusted.device_name, untrusted.product_name, untrusted.line):
            try:
                found = check(text, what="x")
            except UntrustedError:
                continue
            assert found == text
            assert "\n" not in found
            assert "\x1b" not in found
            assert check is untrusted.line or "{" not in found
        try:
            path = untrusted.relative_path(text)
        except UntrustedError:
            continue
        assert not path.is_absolute()
        assert ".." not in path.parts
        assert str(path) == text


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_are_json_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    good = json.dumps({"a": [1, {"b": "x"}], "c": None}).encode()
    for _ in range(500):
        broken = bytearray(good)
        for _ in range(chance.randrange(4)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        try:
            untrusted.json_document(bytes(broken), what="x")
        except UntrustedError as error:
            assert str(error).isprintable()


@pytest.mark.parametrize("password", ["s3cret", "s3@cret", "@s3cret@"])
def test_the_password_of_a_url_is_replaced_whole(password: str) -> None:
    shown = untrusted.without_password(f"'https://me:{password}@hub.test/a@b' and https://hub.test/c@d")
    assert shown == "'https://********@hub.test/a@b' and https://hub.test/c@d"
