"""What the documentation of all modules has that change nothing."""

from __future__ import annotations


class ModuleDocFragment:
    """The fragment, as ansible-doc reads it."""

    DOCUMENTATION = r"""
attributes:
  check_mode:
    description: Changes nothing, so check mode is the same.
    support: full
"""
