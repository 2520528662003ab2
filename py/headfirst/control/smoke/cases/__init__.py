"""All cases; importing them registers them in the order in which they run."""

from headfirst.control.smoke.cases import (  # noqa: F401, I001
    chat,
    sampling,
    stream,
    structured,
    tools,
    pooling,
    extras,
    errors,
    limits,
)
