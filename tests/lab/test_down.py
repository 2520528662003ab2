"""`deploy down` removes what runs and nothing else: what the next `up` needs stays."""

from __future__ import annotations

import pytest
from readme_lab import Service, bring_up, deploy, on_node, running, succeeds

pytestmark = [pytest.mark.lab, pytest.mark.replaces_the_service]


def test_only_what_runs_goes(service: Service) -> None:
    on_node(
        "node1", "docker run --detach --name neighbour --network none headfirst/sglang-cpu:0.5.23 sleep 600"
    )
    try:
        assert "Stopped." in succeeds("down", options=["--plain"])
        for node in ("node1", "node2"):
            assert on_node(node, "docker ps --all --quiet --filter name=headfirst-") == ""
            assert on_node(node, "ls -d /etc/headfirst /opt/headfirst 2>/dev/null || true") == ""
            assert on_node(node, "ls /var/lib/headfirst/models/headfirst-demo-bf16/config.json")
        kept = "/var/lib/headfirst/credentials.json"
        assert on_node("node1", f"stat -c '%a %U' {kept}") == "600 root"
        assert service.password in on_node("node1", f"cat {kept}")
        assert on_node("node1", "docker ps --quiet --filter name=neighbour")
        assert deploy("status", options=["--json"]).returncode == 3
        assert "Nothing was running." in succeeds("down", options=["--plain"])
    finally:
        on_node("node1", "docker rm --force neighbour")


@pytest.mark.slow
def test_the_next_up_serves_again(service: Service) -> None:
    assert deploy("down", options=["--plain"]).returncode == 0
    assert bring_up().password == service.password
    assert all(running(node) for node in ("node1", "node2"))
