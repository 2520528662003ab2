"""Asks an engine in its image, on a host that has it: what it can do, and what it makes of commands."""
