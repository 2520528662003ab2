"""Whether a checkpoint has a chat template, by its files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

CONFIG = "tokenizer_config.json"
_FILES = ("chat_template.jinja", "chat_template.json")
# For these the engines have a chat's form themselves: tokenizers of Mistral's format (vLLM's
# tokenizers/registry.py), and models without a template (SGLang's entrypoints/openai/chat_encoding.py).
_MISTRAL = ("tekken.json", "tokenizer.model.v3", "tokenizer.model.v7")
_ENCODED = ("Deepseek", "Kimi", "Inkling", "Grok")
FILES = (CONFIG, *_FILES, *_MISTRAL)


def has_template(
    config: Mapping[str, Any], names: Collection[str], read: Callable[[str], Mapping[str, Any]]
) -> bool | None:
    """True or False where the files show it; None where they do not.

    `config` is config.json's content, `names` are the files of the checkpoint, and `read` gives the content
    of one.
    """
    if any(name in names for name in _FILES):
        return True
    architectures = config.get("architectures")
    encoded = isinstance(architectures, list) and str(architectures[:1]).startswith(
        tuple(f"['{name}" for name in _ENCODED)
    )
    if encoded or CONFIG not in names or any(name in names for name in _MISTRAL):
        return None
    tokenizer = read(CONFIG)
    if tokenizer.get("chat_template"):
        return True
    return None if "auto_map" in tokenizer else False  # its own code may have one
