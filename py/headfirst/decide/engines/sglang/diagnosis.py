"""SGLang's flags as `deploy diagnose` reads them."""

from __future__ import annotations

from headfirst.decide.engines.diagnostics import Diagnostics
from headfirst.decide.engines.sglang.tuning import tune

DIAGNOSTICS = Diagnostics(
    rank_flag="--node-rank",
    head_flag="--dist-init-addr",
    # Only rank 0 listens for clients and has the key.
    own_flags=frozenset({"--node-rank", "--host", "--config"}),
    secret_flags=frozenset({"--api-key", "--admin-api-key", "--hf-token"}),
    slow_start_flags=frozenset({"--enable-torch-compile"}),
    tune=tune,
)
