"""All rules of role `check`, applied to each host alone and then to the hosts together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils import (
    check_cluster_rules,
    check_differences,
    check_gpu_rules,
    check_network_rules,
    check_rules,
    check_service_rules,
)
from ansible_collections.headfirst.serving.plugins.plugin_utils.check_rules import Finding, Limits

# Importing them has registered their rules, in this order.
RULE_FILES = (check_rules, check_gpu_rules, check_network_rules, check_service_rules)


def findings(results: Mapping[str, Mapping[str, Any]], limits: Mapping[str, Limits]) -> list[Finding]:
    """What is wrong with the hosts: `results` of module host_facts and `limits` of the role, by host."""
    facts = {host: result["host"] for host, result in results.items() if "host" in result}
    silent = [host for host in results if host not in facts]
    found = [check_cluster_rules.silent_host(host, results[host]) for host in silent]
    for host, known in facts.items():
        found += check_rules.check_host(host, known, limits[host])
    addresses = {host: limit["address"] for host, limit in limits.items() if limit["address"]}
    ranks = {host: known for host, known in facts.items() if limits[host]["is_rank"]}
    return [
        *found,
        *check_cluster_rules.compare(facts, addresses),
        *check_differences.differences(ranks, limits),
        *check_differences.model_folder(ranks, limits),
    ]
