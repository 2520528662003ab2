"""All rules of role `check`, applied to each host alone and then to the hosts together."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.headfirst.serving.plugins.plugin_utils import (
    check_differences,
    check_gpu_rules,
    check_network_rules,
    check_rules,
    check_service_rules,
)
from ansible_collections.headfirst.serving.plugins.plugin_utils.check_rules import (
    Finding,
    Limits,
    finding,
    some,
)

# Importing them has registered their rules, in this order.
RULE_FILES = (check_rules, check_gpu_rules, check_network_rules, check_service_rules)


def limits(variables: Mapping[str, Any], spec: Mapping[str, Any]) -> Limits:
    """What a host must meet: variables `check_NAME` by NAME, with the types of the role's `spec`."""
    checked = ArgumentSpecValidator(spec).validate(
        {name: variables[name] for name in spec if name in variables}
    )
    if checked.error_messages:
        raise ValueError("; ".join(checked.error_messages))
    return {name.removeprefix("check_"): checked.validated_parameters[name] for name in spec}


def findings(results: Mapping[str, Mapping[str, Any]], limits: Mapping[str, Limits]) -> list[Finding]:
    """What is wrong with the hosts: `results` of module host_facts and `limits` of the role, by host."""
    facts = {host: result["host"] for host, result in results.items() if "host" in result}
    silent = [host for host in results if host not in facts]
    per_host = [silent_host(host, results[host]) for host in silent]
    for host, host_facts in facts.items():
        per_host += check_rules.check_host(host, host_facts, limits[host])
    addresses = {host: limit["address"] for host, limit in limits.items() if limit["address"]}
    ranks = {host: host_facts for host, host_facts in facts.items() if limits[host]["is_rank"]}
    return [
        *per_host,
        *compare(facts, addresses),
        *check_differences.differences(ranks, limits),
        *check_differences.model_folder(ranks, limits),
    ]


# (id, pattern of the failure, what, fix). The first match wins. From OpenSSH, sudo, ansible-core 2.19.
FAILURES = [
    (
        "host-key",
        r"host key verification failed|remote host identification has changed",
        "its SSH host key is not the recorded one",
        "If the host was reinstalled: ssh-keygen -R ADDRESS, then connect once with ssh.",
    ),
    (
        "ssh-login",
        r"permission denied",
        "it refuses the SSH login",
        "Check ansible_user and ansible_ssh_private_key_file; try: ssh USER@ADDRESS true",
    ),
    (
        "sudo",
        r"sudo|become password|privilege escalation",
        "root cannot be reached with sudo",
        "Give the user sudo rights, and its password with --ask-become-pass if it needs one.",
    ),
    (
        "python",
        r"python\S*: (command )?not found|no python interpreter|minimum of python|interpreter .*not found",
        "it has no Python that Ansible can use",
        "apt-get install python3",
    ),
    (
        "disk",
        r"no space left on device",
        "its disk is full",
        "Free space; the largest folders: du -xh / | sort -h | tail",
    ),
]
# What `compare` reads, with the numbers of known failures in docs/diagnose.md.
COMPARED: dict[str, tuple[int, ...]] = {"hostname": (), "address-unique": (8,), "architecture": ()}
UNREACHABLE = "Check that it is on and that ansible_host is right. Try: ssh USER@ADDRESS true"


def silent_host(host: str, result: Mapping[str, Any]) -> Finding:
    """Explain why module host_facts gave no facts of `host`, from the task's result."""
    text = " ".join(str(result.get(key, "")) for key in ("msg", "module_stderr", "module_stdout"))
    text = text.replace("Task failed: ", "").strip().rstrip(".") + "."
    for id, pattern, what, fix in FAILURES:
        if re.search(pattern, text, re.IGNORECASE):
            return finding(id, "error", host, what, text, fix)
    if result.get("unreachable"):
        return finding("reachability", "error", host, "it does not answer on SSH", text, UNREACHABLE)
    return finding(
        "facts", "error", host, "reading its state failed", text, "Run again with -vvv for the details."
    )


def compare(facts: Mapping[str, Mapping[str, Any]], addresses: Mapping[str, str]) -> list[Finding]:
    """Compare the hosts: `facts` per inventory name, `addresses` of the data plane per inventory name."""
    hostnames = {host: str(host_facts["hostname"]) for host, host_facts in facts.items()}
    return [
        *_shared(
            "hostname",
            hostnames,
            "Names identify hosts in logs and certificates.",
            "hostnamectl hostname NAME",
        ),
        *_shared("address-unique", addresses, "Two ranks cannot share one.", "Correct the inventory."),
        *_differ("architecture", {host: host_facts["architecture"] for host, host_facts in facts.items()}),
    ]


def _shared(id: str, values: Mapping[str, str], why: str, fix: str) -> list[Finding]:
    holders = defaultdict(list)
    for host, value in values.items():
        holders[value].append(host)
    noun = id.split("-")[0]
    return [
        finding(
            id,
            "error",
            host,
            f"its {noun} {value} is also that of {some(h for h in hosts if h != host)}",
            why,
            fix,
        )
        for value, hosts in holders.items()
        if len(hosts) > 1
        for host in hosts
    ]


def _differ(id: str, values: Mapping[str, str]) -> list[Finding]:
    if len(set(values.values())) < 2:
        return []
    kinds = sorted(set(values.values()))
    listed = "; ".join(f"{kind}: {some(host for host in values if values[host] == kind)}" for kind in kinds)
    why = "One image serves all ranks."
    return [
        finding(id, "error", host, f"the hosts differ in {id} ({listed})", why, "Use hosts of one type.")
        for host in values
    ]
