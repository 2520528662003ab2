"""A bundle: one file with all that a plan needs from outside, for networks without a way there."""
