"""`deploy down`: stop the service and remove what Headfirst made on the nodes."""

from __future__ import annotations

from headfirst.cluster.inventory import load
from headfirst.deployment.options import RunOptions
from headfirst.deployment.role_vars import stop_vars
from headfirst.deployment.stages import run_stages
from headfirst.run.reporter import Reporter
from headfirst.run.result import RunResult


def down(options: RunOptions, reporter: Reporter, *, data: bool) -> RunResult:
    """Stop Open WebUI and the ranks and remove our files; with `data`, weights and chats too."""
    cluster = load(options.inventories, options.extra_vars, options.limit)
    extra = ["headfirst_down_data=true"] if data else []
    return run_stages("down.yml", options, cluster, stop_vars(cluster), reporter, extra=extra)
