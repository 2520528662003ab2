"""Takes known secrets out of text and of results, as a second fence behind Ansible's no_log."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

MASK = "********"


class Scrubber:
    """Replaces each of `secrets`, as it is or as JSON or YAML writes it, by asterisks; not empty ones."""

    def __init__(self, secrets: Sequence[str]) -> None:
        forms = {form for secret in secrets if secret for form in _forms(secret)}
        # Longest first, so that a secret which contains another one goes as a whole.
        ordered = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """`text` without the secrets."""
        return self._pattern.sub(MASK, text) if self._pattern else text

    def value(self, value: Any) -> Any:
        """A copy of a JSON-like value without the secrets, in keys too."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value


def _forms(secret: str) -> tuple[str, ...]:
    return secret, json.dumps(secret)[1:-1], secret.replace("'", "''")
