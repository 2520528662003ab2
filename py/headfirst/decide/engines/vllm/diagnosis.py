"""vLLM's flags as `deploy diagnose` reads them."""

from __future__ import annotations

from headfirst.decide.engines.diagnostics import Diagnostics

DIAGNOSTICS = Diagnostics(
    rank_flag="--node-rank",
    head_flag="--master-addr",
    # Only rank 0 listens for clients and has the key.
    own_flags=frozenset(
        {"--node-rank", "--headless", "--host", "--port", "--config", "--data-parallel-start-rank"}
    ),
    secret_flags=frozenset({"--api-key", "--hf-token"}),
)
