"""LMDeploy's flags as `deploy diagnose` reads them."""

from __future__ import annotations

from headfirst.decide.engines.diagnostics import Diagnostics

DIAGNOSTICS = Diagnostics(
    rank_flag="--node-rank",
    head_flag="--dist-init-addr",
    # TurboMind's ranks and the API servers of --dp listen each on an address of their own.
    own_flags=frozenset({"--node-rank", "--server-name"}),
    secret_flags=frozenset({"--api-keys"}),
)
