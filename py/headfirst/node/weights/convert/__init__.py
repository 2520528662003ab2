"""Quantised checkpoints to BF16: what to do with each tensor, and doing it shard by shard."""
