"""A checkpoint described from its folder, its hub or the catalogue."""

from headfirst.model.checkpoint import Checkpoint
from headfirst.model.describe import describe

__all__ = ["Checkpoint", "describe"]
