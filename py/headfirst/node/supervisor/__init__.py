"""Runs on every node: keeps the ranks of each replica alive together, without a controller."""
