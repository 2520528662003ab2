"""Checkpoints on the nodes: fetch, distribute, convert, verify. Also usable alone, as `headfirst-weights`."""
