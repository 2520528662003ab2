"""Hosts' hardware: facts that a host reports, and what is known of GPUs by name."""
