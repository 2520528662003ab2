"""Requests between nodes that share a secret: proven to be a member's, bounded, never replayed."""
