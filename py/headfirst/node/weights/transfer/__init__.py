"""From node to node: what members report to each other, and the bytes (docs/weights-protocol.md)."""
