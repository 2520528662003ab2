"""Validation of what nodes, hubs, mirrors, registries and model folders send.

Each function returns the value with its type proven, or raises UntrustedError. Nothing from outside becomes
a path, a template, an argument or terminal output unchecked. The node tools ship this module too.
"""

from __future__ import annotations

import json
import re
import unicodedata
import zlib
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from headfirst.common.errors import HeadfirstError

# Names that the kernel, NVIDIA's driver and the RDMA subsystem give; spaces occur in product names only.
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]*")
_PRODUCT = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.,:/()+®™-]*")
_WINDOWS_DRIVE = re.compile(r"[A-Za-z]:")
# CSI; OSC, DCS and the other strings up to their end; short sequences. Of a string that has no end only the
# ESC is removed, so that it cannot hide the text after it.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-OQ-WYZ`-~])")
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
# Beside line feed and tab the joiners, without which Persian, Hindi and some emoji are spelt wrongly.
_KEPT = "\n\t\u200c\u200d"
MAX_NAME = 255  # bytes of one path component on Linux
MAX_PATH = 1024


class UntrustedError(HeadfirstError):
    """Data from outside that breaks its format; `where` names the sender."""


def device_name(value: Any, *, what: str, where: str | None = None, limit: int = 64) -> str:
    """A name of an interface, an RDMA device or a kernel module: ASCII letters, digits and `_.:@-`."""
    return _matching(value, _DEVICE, what, where, limit)


def product_name(value: Any, *, what: str, where: str | None = None, limit: int = 128) -> str:
    """A product's name, such as `NVIDIA A100-SXM4-80GB`."""
    return _matching(value, _PRODUCT, what, where, limit)


def line(value: Any, *, what: str, where: str | None = None, limit: int = 1024) -> str:
    """One line of printable text of at most `limit` characters."""
    text = _text(value, what, where, limit)
    # isprintable, which is quick, refuses all of these and a few more.
    if not text.isprintable() and any(not _printable(char) for char in text):
        raise UntrustedError(f"{what} has control characters: {shown(text)}", where=where)
    return text


def integer(value: Any, *, what: str, where: str | None = None, low: int = 0, high: int = 2**63 - 1) -> int:
    """An integer between `low` and `high`, both included; a bool or a float is none."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise UntrustedError(f"{what} is not an integer from {low} to {high}: {_brief(value)}", where=where)
    return value


def relative_path(value: Any, *, what: str = "the file name", where: str | None = None) -> PurePosixPath:
    """A path that stays inside a folder: relative, without `.` or `..`, `\\`, drive or control characters."""
    text = line(value, what=what, where=where, limit=MAX_PATH)
    parts = text.split("/")
    bad = (
        "\\" in text
        or _WINDOWS_DRIVE.match(text)
        or any(part in ("", ".", "..") or len(part.encode()) > MAX_NAME for part in parts)
        or any(part != part.strip() for part in parts)
    )
    if bad:
        raise UntrustedError(f"{what} does not stay inside its folder: {shown(text)}", where=where)
    return PurePosixPath(text)


def file_listing(names: Iterable[Any], *, where: str | None = None, limit: int = 100_000) -> list[str]:
    """File names of a whole folder, each a relative_path; none twice, also after case folding, and none a
    folder of another one. One bad name refuses the whole list."""
    listing: list[str] = []
    seen: dict[str, str] = {}
    for name in names:
        if len(listing) >= limit:
            raise UntrustedError(f"the file list has more than {limit} names", where=where)
        text = str(relative_path(name, where=where))
        key = _folded(text)
        if key in seen:
            raise UntrustedError(
                f"the file list has names that clash: {shown(seen[key])} and {shown(text)}", where=where
            )
        seen[key] = text
        listing.append(text)
    for text in listing:
        for parent in PurePosixPath(text).parents:
            if (key := _folded(str(parent))) in seen:
                raise UntrustedError(
                    f"the file list has {shown(seen[key])} as a file and as a folder", where=where
                )
    return listing


def json_document(
    data: bytes | str, *, what: str, where: str | None = None, limit: int = 64 << 20, depth: int = 64
) -> Any:
    """JSON of at most `limit` bytes, nested at most `depth` deep, with no name twice in an object."""
    if len(data) > limit:
        raise _too_large(what, where, limit)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            raise ValueError("an object has a name twice")
        return members

    too_deep = f"{what} is nested more than {depth} deep"
    try:
        document = json.loads(data, object_pairs_hook=unique)
    except ValueError as error:
        raise UntrustedError(f"{what} is not JSON: {shown(str(error))}", where=where) from None
    except RecursionError:
        raise UntrustedError(too_deep, where=where) from None
    if _deeper_than(document, depth):
        raise UntrustedError(too_deep, where=where)
    return document


def finite_json(text: str) -> Any:
    """What a person writes as JSON. ValueError for what `json_document` refuses, NaN and infinite numbers."""
    try:
        document = json_document(text, what="the text")
    except UntrustedError as error:
        raise ValueError(error.what) from None
    json.dumps(document, allow_nan=False)
    return document


def joined(chunks: Iterable[bytes], *, what: str, where: str | None = None, limit: int) -> bytes:
    """All of a stream of at most `limit` bytes; of a longer one nothing more is read."""
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > limit:
            raise _too_large(what, where, limit)
    return bytes(content)


def inflate(data: bytes, *, what: str, where: str | None = None, limit: int) -> bytes:
    """zlib data that is complete and not longer than `limit` bytes when inflated."""
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, limit + 1)
    except zlib.error as error:
        raise UntrustedError(f"{what} is not zlib data: {error}", where=where) from None
    if len(inflated) > limit:
        raise _too_large(what, where, limit)
    if not inflater.eof:
        raise UntrustedError(f"{what} is cut off", where=where)
    return inflated


def for_terminal(text: str, *, colours: bool = False) -> str:
    """`text` without escape sequences and control characters but for line feeds and tabs; with `colours`,
    sequences that only set colour and weight stay."""
    if text.replace("\n", "").replace("\t", "").isprintable():  # as most text; an escape character is not
        return text
    if colours:
        parts = _COLOUR.split(text)
        return "".join(part if number % 2 else for_terminal(part) for number, part in enumerate(parts))
    return "".join(char for char in _ESCAPE.sub("", text) if char in _KEPT or _printable(char))


def shown(text: str, limit: int = 120) -> str:
    """`text` as an error may quote it: one line, escaped, at most `limit` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(char if _printable(char) else char.encode("unicode_escape").decode() for char in cut)


def without_password(text: str) -> str:
    """The text with user names and passwords of its URLs replaced; a password may have a raw @."""
    return re.sub(r"://[^/\s?#\"'<>`]+@", "://********@", text)


def _too_large(what: str, where: str | None, limit: int) -> UntrustedError:
    return UntrustedError(f"{what} is larger than {limit} bytes", where=where)


def _matching(value: Any, pattern: re.Pattern[str], what: str, where: str | None, limit: int) -> str:
    text = _text(value, what, where, limit)
    if not pattern.fullmatch(text):
        raise UntrustedError(f"{what} has characters that are not allowed: {shown(text)}", where=where)
    return text


def _text(value: Any, what: str, where: str | None, limit: int) -> str:
    if not isinstance(value, str):
        raise UntrustedError(f"{what} is not text: {_brief(value)}", where=where)
    if len(value) > limit:
        raise UntrustedError(f"{what} is longer than {limit} characters: {shown(value)}", where=where)
    return value


def _brief(value: Any) -> str:
    """A value of any type in an error; neither its length nor its depth matters."""
    if isinstance(value, str):
        return shown(value)
    small = value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**64)
    return repr(value) if small else f"a value of type {type(value).__name__}"


def _printable(char: str) -> bool:
    # Cc: control; Cf: format, such as bidirectional overrides; Cs: lone surrogates; Zl, Zp: line separators.
    return unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def _deeper_than(document: Any, depth: int) -> bool:
    level = [document]
    for _level in range(depth + 1):
        level = [item for item in level if isinstance(item, (dict, list))]
        if not level:
            return False
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
    return True


def hex_digest(value: Any, *, what: str, where: str | None = None, digits: int) -> str:
    """A digest of exactly `digits` lower-case hexadecimal digits."""
    return _matching(value, re.compile(f"[0-9a-f]{{{digits}}}"), what, where, digits)


def json_object(value: Any, *, what: str, where: str | None = None, limit: int = 1_000_000) -> dict[str, Any]:
    """An object of a parsed JSON document, with at most `limit` names."""
    if not isinstance(value, dict) or len(value) > limit:
        raise UntrustedError(f"{what} is not an object of at most {limit} names", where=where)
    return value
