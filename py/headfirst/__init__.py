"""Headfirst: bare servers to a multi-node LLM service, the head node first."""

__version__ = "0.1.0"
