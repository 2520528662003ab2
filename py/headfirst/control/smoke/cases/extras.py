"""What depends on the model or on what was loaded with it: images, LoRA adapters."""

from __future__ import annotations

import base64
import struct
import zlib

from headfirst.common.untrusted import shown
from headfirst.control.smoke.answers import FailedCase, NotSupportedCase
from headfirst.control.smoke.api import Api
from headfirst.control.smoke.verdict import case

_SIDE = 64  # pixels; vision encoders refuse images smaller than one of their patches


@case("vision.image", frozenset({"vision"}))
def image(api: Api) -> str:
    """A picture in the request reaches the model."""
    text = {"type": "text", "text": "Which colour is this?"}
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_red_png()}"}}
    alone = api.chat([{"role": "user", "content": [text]}], max_tokens=4)
    chat = api.chat([{"role": "user", "content": [picture, text]}])
    if chat.usage.prompt_tokens <= alone.usage.prompt_tokens:
        raise FailedCase("the picture adds no tokens to the prompt: it does not reach the model")
    if not chat.text.strip():
        raise FailedCase("the answer has no text")
    more = chat.usage.prompt_tokens - alone.usage.prompt_tokens
    return f"{more} tokens of picture: {shown(chat.text, 40)}"


def _red_png() -> str:
    """A red square as base64 of a PNG file (RFC 2083)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 2, 0, 0, 0)  # 8 bits, RGB
    rows = (b"\0" + b"\xff\0\0" * _SIDE) * _SIDE
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


@case("lora.adapter")
def adapter(api: Api) -> str:
    """An adapter answers under its name."""
    adapters = [model.id for model in api.models().data if model.parent]
    if not adapters:
        raise NotSupportedCase("the service has no LoRA adapter")
    for name in adapters:
        model = api.target.dialect.adapter.format(model=api.target.model, adapter=name)
        if not api.chat(model=model).text.strip():
            raise FailedCase(f"{shown(model)} answers without text")
    return shown(", ".join(adapters), 80)
