"""Documents of nodes as pydantic models; untrusted.py goes to the nodes, which have no pydantic."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from headfirst.common.untrusted import UntrustedError, shown

_Model = TypeVar("_Model", bound=BaseModel)


def validated(model: type[_Model], document: Any, *, what: str, where: str) -> _Model:
    """The document with its types proven; UntrustedError naming `where` and the first wrong field."""
    try:
        return model.model_validate(document)
    except UntrustedError as error:
        raise UntrustedError(f"{what} refused: {error.what}", where=where) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(shown(str(part), 40) for part in first["loc"])
        raise UntrustedError(f"{what} refused: {place}: {first['msg']}", where=where) from None
